"""Profiles through the local executor: taken in the sandbox, and never able to change a verdict."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from stark.core.evaluation import Correct
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.core.profile import OUTSIDE
from stark.evaluator.executors import Executor, open_executor
from stark.languages import language
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.examples import guide_example
from support.sharing import JudgeWithin

pytest.importorskip("torch")

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMITS = Limits(timing_budget_s=0.1)


@pytest.fixture(scope="module")
def executor(judge_within: JudgeWithin) -> Executor:
    return judge_within(LIMITS)


async def judged(executor: Executor, source: str) -> Correct:
    found = await executor.evaluate(PROBLEM, as_candidate("cpp", source))
    assert isinstance(found, Correct), found
    return found


async def test_the_reference_tells_which_operators_take_its_time(executor: Executor) -> None:
    reference = await executor.describe(PROBLEM)

    assert reference.profile is not None
    assert {"aten::mul", "aten::clamp_min"} <= {step.name for step in reference.profile.steps}
    assert "host" == reference.profile.clock


async def test_a_correct_candidate_tells_too_and_native_code_is_its_own(executor: Executor) -> None:
    example = guide_example(language("cpp"))

    found = await executor.evaluate(example.problem, example.candidate)

    assert isinstance(found, Correct), found
    assert found.profile is not None
    first = found.profile.steps[0]
    assert ("bias_relu_normalize", True) == (first.name, first.own)
    assert OUTSIDE in {step.name for step in found.profile.steps}
    assert found.profile.own_share > 0.5
    assert found.profile.busy_cores is not None and found.profile.page_faults is not None
    assert "profile" in found.seconds
    assert "" == found.output, "the profiler's own words are not the candidate's"


HONEST = FAULTS["honest"][0]
SPOILING = {
    "raises": "def spoilt(*_, **__):\n    raise RuntimeError('no profile')",
    "exits": "import os\ndef spoilt(*_, **__):\n    os._exit(3)",
    "ends politely": "def spoilt(*_, **__):\n    raise SystemExit(0)",
    "says nothing of use": "def spoilt(*_, **__):\n    return {'steps': 'many'}",
    "says too much": "def spoilt(*_, **__):\n    return 'x' * 200_000",
    "claims what is not so": (
        "def spoilt(*_, **__):\n"
        "    return dict(calls=1, busy_us=float('nan'), total_us=1, count=1, entries=[], wall_s=1,"
        " busy_cores=1, spills={})"
    ),
}


@pytest.mark.parametrize("how", SPOILING)
async def test_a_profile_that_fails_leaves_the_verdict_and_one_warning(
    executor: Executor, how: str
) -> None:
    spoilt = (
        f"{SPOILING[how]}\nimport stark.evaluator.candidate.runner as runner\n"
        f"runner.profiled = spoilt\n{HONEST}"
    )

    found = await judged(executor, spoilt)
    after = await judged(executor, HONEST)

    assert found.profile is None
    assert 1 == sum("no profile" in warning for warning in found.warnings)
    assert after.profile is not None


async def test_a_profile_that_hangs_ends_at_its_deadline(executor: Executor) -> None:
    hanging = (
        "import time\nimport stark.evaluator.candidate.runner as runner\n"
        f"runner.profiled = lambda *_: time.sleep(600)\n{HONEST}"
    )

    found = await judged(executor, hanging)

    assert found.profile is None
    assert any("the profile phase did not end within" in warning for warning in found.warnings)


async def test_a_boast_is_information_and_changes_no_number(executor: Executor) -> None:
    boast = (
        "def spoilt(*_, **__):\n"
        "    step = dict(name='aten::wonder', operator=None, count=1, us=1e-3, launch=None)\n"
        "    return dict(calls=1, busy_us=1e-3, total_us=1e-3, count=1, entries=[step],"
        " busy_cores=1)\n"
        f"import stark.evaluator.candidate.runner as runner\nrunner.profiled = spoilt\n{HONEST}"
    )

    found = await judged(executor, boast)

    assert found.profile is not None
    assert found.latency_ms > 1e-3
    assert found.speedup_vs("eager").low < 2


# On a device: what binds three programs is named.

STREAM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(1 << 27)]

def get_init_inputs():
    return []
"""

PRODUCT = STREAM.replace("torch.relu(x)", "x @ x").replace("1 << 27", "4096, 4096")

MANY_SMALL = STREAM.replace("1 << 27", "1024").replace(
    "return torch.relu(x)",
    "for _ in range(256):\n            x = torch.relu(x.view(32, 32).mT.mT).view(1024)\n        return x",
)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def on_device() -> AsyncIterator[Executor]:
    judge = open_executor("local:cuda:0", LIMITS)
    yield judge
    await judge.close()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("source", "kind", "step"),
    [
        (STREAM, "memory", "elementwise"),
        (PRODUCT, "compute", "gemm"),
        (MANY_SMALL, "launch", "elementwise"),
    ],
    ids=["memory-bound", "compute-bound", "launch-bound"],
)
async def test_what_binds_is_named_on_a_device(
    on_device: Executor, source: str, kind: str, step: str
) -> None:
    problem = Problem(name=kind, source=source)
    same = as_candidate("triton", source.replace("class Model(", "class ModelNew("))

    reference = await on_device.describe(problem)
    found = await on_device.evaluate(problem, same)

    assert isinstance(found, Correct), found
    assert found.profiled is not None, found.warnings
    assert reference.profiled is not None
    assert (kind, kind) == (found.profiled.bottleneck.kind, reference.profiled.bottleneck.kind)
    first = found.profiled.profile.steps[0]
    assert step in first.name.lower()
    assert first.launch is not None
    assert first.launch.registers > 0
    assert found.seconds["profile"] < 2


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["triton", "cuda"])
async def test_kernels_of_its_own_are_told_with_registers_and_spills(
    on_device: Executor, name: str
) -> None:
    example = guide_example(language(name))

    found = await on_device.evaluate(example.problem, example.candidate)

    assert isinstance(found, Correct), found
    assert found.profile is not None, found.warnings
    first = found.profile.steps[0]
    assert first.own
    assert first.launch is not None
    assert first.launch.registers > 0
    assert first.launch.spilled_bytes is not None
