from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.candidate.arena import TensorAt
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.numbers import LEAST, STEP, floats_of, with_other_floats


def test_floats_change_by_a_few_percent_and_all_else_stays() -> None:
    arguments = [TensorAt(0), 1.0, {"eps": 1e-5, "heads": 8, "causal": True}, (None, -2.0, "sum")]
    drawn = Drawn([torch.ones(2)], arguments)

    found = with_other_floats(drawn, seed=1)

    assert [1.0, 1e-5, -2.0] == floats_of(arguments)
    shares = [
        1 - new / old
        for old, new in zip(floats_of(arguments), floats_of(found.arguments), strict=True)
    ]
    assert all(LEAST <= share <= STEP for share in shares) and len(set(shares)) == 3
    assert [TensorAt(0), 8, True] == [
        found.arguments[0],
        found.arguments[2]["heads"],
        found.arguments[2]["causal"],
    ]
    assert (None, "sum") == found.arguments[3][::2]
    assert found.tensors is drawn.tensors


def test_nothing_is_made_of_nothing() -> None:
    drawn = Drawn([], [0.0, float("inf")])

    assert [0.0, float("inf")] == floats_of(with_other_floats(drawn, seed=1).arguments)
