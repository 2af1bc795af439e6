"""Ways to be right on the problem's own inputs without computing its function, on a CPU."""

from __future__ import annotations

import pytest

from stark.core.evaluation import Correct, Incorrect, Rejected
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.executors import Executor
from support.candidates import PROBLEM, as_candidate
from support.sharing import JudgeWithin

pytest.importorskip("torch")

pytestmark = pytest.mark.asyncio(loop_scope="session")


def problem(result: str, inputs: str = "[torch.rand(64, 64)]") -> Problem:
    return Problem(
        name="made_up",
        source=(
            "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n"
            f"    def forward(self, x):\n        return {result}\n\n"
            f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
        ),
    )


def answering(asked: Problem, result: str, own: str) -> str:
    source = asked.source.replace("class Model(", "class ModelNew(")
    return source.replace(f"return {result}\n", f"return {own}\n", 1)


@pytest.fixture(scope="module")
def executor(judge_within: JudgeWithin) -> Executor:
    return judge_within(Limits(timing_budget_s=0.2))


@pytest.mark.parametrize(
    ("result", "own", "status"),
    [
        ("torch.relu(x)", "torch.where(x > 0, x, 0 * x)", "correct"),
        ("torch.relu(x)", "x * 1", "incorrect"),
        ("torch.relu(x)", "x.abs()", "incorrect"),
        ("torch.relu(x)", "x.clamp(0, 1)", "incorrect"),
        (
            "torch.softmax(x, 1)",
            "(x - x.amax(1, True)).exp() / (x - x.amax(1, True)).exp().sum(1, True)",
            "correct",
        ),
        ("torch.softmax(x, 1)", "x.exp() / x.exp().sum(1, True)", "incorrect"),
        (
            "torch.sigmoid(x)",
            "0.5 + 0.25 * x - x**3 / 48 + x**5 / 480 - 17 * x**7 / 80640",
            "incorrect",
        ),
        ("torch.log(x)", "x.log()", "correct"),
    ],
)
async def test_a_function_is_computed_on_any_input(
    executor: Executor, result: str, own: str, status: str
) -> None:
    asked = problem(result)

    found = await executor.evaluate(asked, as_candidate("cpp", answering(asked, result, own)))

    assert status == found.status, found


async def test_the_regime_of_a_failure_is_named(executor: Executor) -> None:
    asked = problem("torch.relu(x)")
    identity = as_candidate("cpp", answering(asked, "torch.relu(x)", "x * 1"))

    found = await executor.evaluate(asked, identity)

    assert isinstance(found, Incorrect)
    assert found.error.startswith("with mixed inputs, output 0:")


def degeneracies(said: Reference | Correct) -> list[str]:
    """Warnings of these alone: a busy machine brings others."""
    return [warning for warning in said.warnings if "degenerate" in warning]


async def test_a_degenerate_problem_says_so_in_every_result(executor: Executor) -> None:
    result = "torch.softmax(x[:, :1], 1)"
    asked = problem(result)

    reference = await executor.describe(asked)
    found = await executor.evaluate(
        asked, as_candidate("cpp", answering(asked, result, "torch.ones_like(x[:, :1])"))
    )

    said = (
        "the problem is degenerate: the mean in every element and the answer to other inputs would pass "
        "as a correct output"
    )
    assert isinstance(found, Correct)
    assert [said] == degeneracies(reference) == degeneracies(found)


async def test_a_single_number_is_no_degenerate_output(executor: Executor) -> None:
    reference = await executor.describe(problem("x.square().mean()"))

    assert [] == degeneracies(reference)


REMEMBERS = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.calls, self.kept = 0, None

    def forward(self, x):
        self.calls += 1
        if self.calls < 20 or self.kept is None:
            self.kept = torch.relu(x) * self.scale
        return self.kept
"""


async def test_a_result_kept_while_it_is_timed_is_found_out(executor: Executor) -> None:
    found = await executor.evaluate(PROBLEM, as_candidate("cpp", REMEMBERS))

    assert isinstance(found, Incorrect), found
    assert "time" in found.seconds


async def test_constants_made_from_initial_weights_are_wrong(executor: Executor) -> None:
    folded = REMEMBERS.replace(
        "self.calls, self.kept = 0, None", "self.folded = self.scale.detach().clone()"
    )
    forward = folded.index("        self.calls += 1")
    source = folded[:forward] + "        return torch.relu(x) * self.folded\n"

    found = await executor.evaluate(PROBLEM, as_candidate("cpp", source))

    assert isinstance(found, Incorrect), found


MEMO = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.kept = {}

    def forward(self, x):
        key = (x.data_ptr(), float(x[0, 0]))
        if key not in self.kept:
            self.kept[key] = torch.relu(x) * self.scale
        return self.kept[key]
"""


async def test_a_memory_of_earlier_inputs_never_pays(executor: Executor) -> None:
    found = await executor.evaluate(PROBLEM, as_candidate("cpp", MEMO))

    assert isinstance(found, Correct), found
    assert found.speedup_vs().low < 1.2


PATCHES_THE_RUNNER = """
import torch
import torch.nn as nn
from stark.evaluator.candidate.runner import Runner

def addresses(results):
    return [result.data_ptr() for result in results]

def skipping(self, request):
    if getattr(self, "kept", None) is None:
        self.kept = [self.model(*self.inputs[0])]
        return {"at": addresses(self.kept), "odd": None}
    twice, self.kept = self.kept, None
    self.alive = twice
    return {"at": addresses(twice), "odd": None}

def late(self, request):
    for result in getattr(self, "promised", []):
        result.copy_(self.model(*self.inputs[0]))
    self.promised = [torch.empty_like(self.outputs[0][0])]
    return {"at": addresses(self.promised), "odd": None}

def says_so(self, request):
    return {"at": addresses([self.outputs[0][0]]), "odd": None}

honest = Runner._answer

def answer(self, work, request):
    timed = request["do"] == "time once"
    return honest(self, (lambda asked: INSTEAD(self, asked)) if timed else work, request)

Runner._answer = answer

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(x) * self.scale
"""


@pytest.mark.parametrize("instead", ["skipping", "late", "says_so"])
async def test_a_patched_runner_is_found_out_while_it_is_timed(
    executor: Executor, instead: str
) -> None:
    found = await executor.evaluate(
        PROBLEM, as_candidate("cpp", PATCHES_THE_RUNNER.replace("INSTEAD", instead))
    )

    assert isinstance(found, Incorrect), found
    assert "time" in found.seconds


async def test_a_patch_that_changes_nothing_is_no_fault(executor: Executor) -> None:
    patched = PATCHES_THE_RUNNER.replace("INSTEAD", "Runner._time_once")

    found = await executor.evaluate(PROBLEM, as_candidate("cpp", patched))

    assert isinstance(found, Correct), found


ANSWERS_AHEAD = """
import torch
import torch.nn as nn
from stark.evaluator.candidate.wire import Channel

honest = Channel.send

def twice(self, message, descriptors=()):
    honest(self, message, descriptors)
    honest(self, message, descriptors)

Channel.send = twice

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(x) * self.scale
"""


async def test_an_answer_to_nothing_that_was_asked_is_rejected(executor: Executor) -> None:
    found = await executor.evaluate(PROBLEM, as_candidate("cpp", ANSWERS_AHEAD))

    assert isinstance(found, Rejected), found
    assert "forged-answer" == found.rule
