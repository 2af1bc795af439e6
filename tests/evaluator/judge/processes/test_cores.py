"""The number of cores that programs get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stark.evaluator.judge.processes import cores


def make_groups(root: Path, limits: dict[str, str]) -> None:
    for group, limit in limits.items():
        folder = root / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(limit)


@pytest.fixture
def grouped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts this process into group `/a/b` of a machine where it may use eight cores."""
    monkeypatch.setattr(cores, "GROUPS", tmp_path)
    monkeypatch.setattr(cores, "GROUP", tmp_path / "of-this-process")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "of-this-process").write_text("1:name=systemd:/x\n0::/a/b\n")
    return tmp_path


@pytest.mark.parametrize(
    ("limits", "usable"),
    [
        ({"a/b": "max 100000\n"}, 8),
        ({"a/b": "350000 100000\n"}, 3),
        ({"a/b": "max 100000\n", "a": "200000 100000\n"}, 2),
        ({"a/b": "20000 100000\n"}, 1),
        ({}, 8),
    ],
)
def test_the_smallest_quota_of_the_groups_around_it_counts(
    grouped: Path, limits: dict[str, str], usable: int
) -> None:
    make_groups(grouped, limits)
    assert cores.usable() == usable


def test_without_control_groups_the_affinity_counts(grouped: Path) -> None:
    (grouped / "of-this-process").unlink()
    assert cores.usable() == 8
