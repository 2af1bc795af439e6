"""What PyTorch's own compiler makes of problems, on a CPU, through a judge."""

from __future__ import annotations

import pytest

from stark.core.errors import CompilerRefused
from stark.core.evaluation import Correct
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import Executor
from support.sharing import JudgeWithin

pytest.importorskip("torch")

pytestmark = pytest.mark.asyncio(loop_scope="session")


def problem(forward: str, init: str = "pass", arguments: str = "x") -> Problem:
    return Problem(
        name="made_up",
        source=(
            "import torch\nimport torch.nn as nn\n\ncall = 3\n\nclass Runner(nn.Module):\n"
            "    def __init__(self):\n        super().__init__()\n"
            "        self.register_buffer('shift', torch.linspace(0, 1, call))\n\n"
            "class Model(nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n        {init}\n"
            f"    def forward(self, {arguments}):\n        {forward}\n\n"
            "def get_inputs():\n    return [torch.randn(8, 3), [torch.randn(8, 3)] * 2]\n\n"
            "def get_init_inputs():\n    return []\n"
        ),
    )


@pytest.fixture(scope="module")
def executor(judge_within: JudgeWithin) -> Executor:
    return judge_within(Limits(timing_budget_s=0.1))


async def test_what_it_generates_is_a_candidate_that_holds(executor: Executor) -> None:
    mixed = problem(
        "y = torch.sin(x) * self.runner.shift + rest[1] * self.scales[1] * self.plain\n"
        "        return {'y': (y, x), 'sum': y.sum(dim=1), 'none': None}",
        "self.runner = Runner(); self.plain = torch.ones(3) * 2\n"
        "        self.scales = nn.ParameterList([torch.ones(3), torch.ones(3)])",
        "x, rest",
    )

    candidate = await executor.compiled(mixed, "cpp")
    found = await executor.evaluate(mixed, candidate)

    assert isinstance(found, Correct), found
    assert "cpp" == candidate.language
    for needed in (
        "self.runner.shift",
        "rest[0]",
        "self.scales[1]",
        "self.plain",
        "'sum': outputs[",
    ):
        assert needed in candidate.source
    assert not [said for said in found.warnings if "weights" in said]


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (problem("return x @ x.T", arguments="x, rest"), "compiles no C\\+\\+"),
        (problem("return x", arguments="x, rest"), "forward contains nothing to compile"),
    ],
    ids=["no kernel", "no operation"],
)
async def test_what_is_no_candidate_is_refused_with_the_reason(
    executor: Executor, refused: Problem, reason: str
) -> None:
    with pytest.raises(CompilerRefused, match=reason):
        await executor.compiled(refused, "cpp")
