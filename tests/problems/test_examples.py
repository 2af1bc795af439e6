"""The examples are problems that a judge can use: determined, finite in most regimes, and with work to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from stark.core.problem import Problem
from stark.problems import load_all

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem.degenerate import passing
from stark.evaluator.judge.problem.inputs import Program
from stark.evaluator.judge.problem.regimes import REGIMES, changed
from stark.evaluator.judge.problem.values import is_inexact
from stark.evaluator.judge.verify.oracle import expect

EXAMPLES = load_all(str(Path(__file__).parents[2] / "examples"))
RECORDED = ("gated_causal_conv", "layernorm_gelu_residual")
"""Larger ones, judged whenever their recordings are replayed."""


def test_there_are_nine() -> None:
    assert [
        "depthwise_hardswish",
        "expert_dispatch",
        "gated_causal_conv",
        "layernorm_gelu_residual",
        "masked_softmax",
        "moving_average",
        "residual_rmsnorm",
        "rmsnorm_swiglu",
        "small_matmuls",
    ] == [problem.name for problem in EXAMPLES]


SMALL = [problem for problem in EXAMPLES if problem.name not in RECORDED]


@pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.name)
def test_an_example_can_be_judged(problem: Problem, tmp_path: Path) -> None:
    program = Program(problem, tmp_path, torch.device("cpu"))
    drawn = program.draw(1)
    outputs, oracle = (
        program.run(drawn),
        program.run_float64(drawn, program.in_float64(constructed=False)),
    )
    expected = [expect(exact, ours) for exact, ours in zip(oracle, outputs, strict=True)]

    assert all(torch.equal(one, two) for one, two in zip(outputs, program.run(drawn), strict=True))
    assert all(one.eager_errors.relative_rms < 2e-6 for one in expected)
    others = [expect(one.double(), one) for one in program.run(program.draw(2))]
    assert [] == passing(drawn, expected, others)
    places = {at: 0.0 for at, tensor in enumerate(drawn.tensors) if is_inexact(tensor)}
    for regime in list(REGIMES)[:2]:
        for output in program.run(changed(drawn, regime, 2, places)):
            assert not output.is_floating_point() or output.isfinite().all(), regime
