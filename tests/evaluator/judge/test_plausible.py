from __future__ import annotations

from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")

from stark.core.evaluation import Rejected
from stark.evaluator.judge.attempt import Verdict
from stark.evaluator.judge.measuring import _check_possible


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
