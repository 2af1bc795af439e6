from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stark.evaluator.judge.building.toolchain import toolchain_of


def test_packages_without_a_name_or_a_version_do_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, metadata in (("whole", "Name: Whole\nVersion: 1.2"), ("half", "Name: half")):
        (tmp_path / f"{name}-1.2.dist-info").mkdir()
        (tmp_path / f"{name}-1.2.dist-info/METADATA").write_text(metadata)
    (tmp_path / "empty-1.2.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    found = toolchain_of(tmp_path).versions

    assert {"package whole": "1.2"} == {
        name: version for name, version in found.items() if name.startswith("package")
    }
