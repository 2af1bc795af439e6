from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")

from stark.core.errors import ProblemError  # noqa: E402
from stark.core.evaluation import OutOfMemory, Rejected  # noqa: E402
from stark.evaluator.judge.attempt import Verdict  # noqa: E402
from stark.evaluator.judge.evaluate import _beside, _check_possible  # noqa: E402


class Limited:
    """A problem whose results take at least a millisecond to be written."""

    def least_ms(self) -> float:
        return 1.0


def test_results_that_cannot_have_been_written_in_time_are_rejected() -> None:
    with pytest.raises(Verdict) as ended:
        _check_possible(0.5, cast(Any, Limited()))

    assert isinstance(ended.value.evaluation, Rejected)
    assert "faster-than-memory" == ended.value.evaluation.rule


def test_results_that_can_are_not() -> None:
    _check_possible(1.5, cast(Any, Limited()))


def test_a_candidate_beside_which_the_judge_has_no_memory_is_out_of_memory() -> None:
    attempt = cast(Any, SimpleNamespace(phase="verify"))

    with pytest.raises(Verdict) as ended, _beside(attempt):
        raise torch.OutOfMemoryError("none left")
    with pytest.raises(ProblemError, match="line 3"), _beside(attempt):
        raise ProblemError("line 3: it raises")

    assert isinstance(ended.value.evaluation, OutOfMemory)
    assert "verify" == ended.value.evaluation.phase
