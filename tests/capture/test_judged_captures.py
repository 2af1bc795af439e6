"""A judge prepares captured problems: the reference runs, inputs are drawn, and outputs can be verified."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from capture_zoo import ZOO
from test_capture import recorded

import stark
from stark.core.candidate import Candidate
from stark.core.evaluation import Correct
from stark.core.judging import Limits
from support.candidates import as_candidate
from support.sharing import JudgeWithin

pytestmark = pytest.mark.asyncio(loop_scope="session")

PREPARED = [
    "own Block",
    "torch Sequential",
    "transformers LlamaDecoderLayer sdpa",
    "transformers MixtralSparseMoeBlock",
    "timm SwinTransformerBlock",
]


@pytest.mark.parametrize("name", PREPARED)
async def test_a_judge_verifies_the_captured_model_against_itself(
    name: str, judge_within: JudgeWithin
) -> None:
    one = ZOO[name]()
    problem = stark.capture(one.module, recorded(one))
    executor = judge_within(Limits(timing_budget_s=0.05))

    evaluation = await executor.evaluate(problem, copied(problem.source))

    assert isinstance(evaluation, Correct), evaluation


def copied(source: str) -> Candidate:
    """The reference itself as a candidate in PyTorch."""
    return as_candidate("pytorch", source.replace("class Model(", "class ModelNew("))
