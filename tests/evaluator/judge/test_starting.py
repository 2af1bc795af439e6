from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")


def started(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A judge whose input ends at once."""
    return subprocess.run(
        [sys.executable, "-m", "stark.evaluator.judge", *arguments],
        env=os.environ | variables,
        input="",
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("banana", "'banana' is not a device; use cpu, or cuda:0 for the first GPU"),
        ("cuda:first", "'cuda:first' is not a device; use cpu, or cuda:0 for the first GPU"),
        ("mps", "'mps' is not a device; use cpu, or cuda:0 for the first GPU"),
        pytest.param("cuda:99", "cuda:99 does not exist: ", marks=pytest.mark.slow),
    ],
)
def test_a_device_that_there_is_not_is_told_in_a_sentence(device: str, said: str) -> None:
    done = started("--device", device)

    assert 1 == done.returncode
    assert 1 == len(done.stderr.splitlines())
    assert done.stderr.startswith(said)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("STARK_CACHE", "/proc/nowhere", "/proc/nowhere cannot be written"),
        (
            "STARK_SANDBOX_WITHOUT",
            "firewall",
            "STARK_SANDBOX_WITHOUT names unknown layers: firewall",
        ),
        ("STARK_CACHE_GB", "much", "STARK_CACHE_GB is 'much'"),
    ],
)
def test_what_is_set_wrong_is_told_in_a_sentence(variable: str, value: str, said: str) -> None:
    done = started("--device", "cpu", **{variable: value})

    assert 1 == done.returncode
    assert 1 == len(done.stderr.splitlines())
    assert done.stderr.startswith(said)
