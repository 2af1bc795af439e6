from __future__ import annotations

from pathlib import Path

import pytest
from conftest import BETTER, BROKEN, GOOD, Stark, candidate_source

from stark.testing.executor import FakeExecutor


@pytest.fixture(autouse=True)
def candidates(workplace: Path) -> None:
    (workplace / "kernels").mkdir()
    (workplace / "kernels" / "a.py").write_text(candidate_source(GOOD))
    (workplace / "kernels" / "b.py").write_text(candidate_source(BETTER))
    (workplace / "broken.py").write_text(candidate_source(BROKEN))


def test_correct_files_exit_0(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark("evaluate", "problem.py", "kernels")

    assert 0 == ended.code
    assert {"cpp"} == {candidate.language for candidate in executor.evaluated}
    assert "2.00x" in ended.out and "4.00x" in ended.out
    assert executor.closed


def test_one_failure_exits_1_with_its_evidence(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark("evaluate", "problem.py", "kernels/a.py", "broken.py")

    assert 1 == ended.code
    assert "relative error 0.31 is over its budget" in ended.out


def test_json(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark("evaluate", "problem.py", "kernels/b.py", "--json")

    (candidate,) = ended.document["candidates"]
    assert ("kernels/b.py", "cpp", "correct") == tuple(
        candidate[key] for key in ("file", "language", "status")
    )
    assert pytest.approx(4.0) == candidate["speedups"]["eager"]["ratio"]
