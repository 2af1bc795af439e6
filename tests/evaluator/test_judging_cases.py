"""Problems with two cases before the judge, on a CPU."""

from __future__ import annotations

import pytest

from stark.core.candidate import Candidate
from stark.core.cases import least
from stark.core.errors import ProblemError
from stark.core.evaluation import Correct, Effort, Evaluation, Incorrect, Untimed
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import Executor
from support.candidates import as_candidate
from support.cases import PROBLEM, SOURCE
from support.sharing import JudgeWithin, SharingExecutor

pytest.importorskip("torch")

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

HONEST = "torch.relu(x) * self.scale"


def candidate(decode: str, prefill: str) -> str:
    """The source of a candidate that chooses what it computes by the number of rows."""
    return f"""
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return {decode} if x.shape[0] < 100 else {prefill}
"""


def edited(old: str, new: str) -> Problem:
    assert 1 == SOURCE.count(old)
    return Problem(name="edited", source=SOURCE.replace(old, new))


@pytest.fixture(scope="module")
def executor(judge_within: JudgeWithin) -> Executor:
    return judge_within(Limits(timing_budget_s=0.2))


class Shorter(SharingExecutor):
    """Judges each case as a search does: the final check compiles the reference of each, which takes long."""

    async def _judge(
        self, problem: Problem, candidate: Candidate, effort: Effort, timed: bool = True
    ) -> Evaluation | Untimed:
        return await super()._judge(problem, candidate, "search", timed)


async def test_the_reference_has_both_cases(executor: Executor) -> None:
    found = await executor.describe(PROBLEM)

    assert {"decode": "float32[8, 256]", "prefill": "float32[1024, 256]"} == {
        case: str(each.inputs[0]) for case, each in found.cases.items()
    }
    assert found.inputs == found.cases["decode"].inputs
    assert found.cases["prefill"].roofline.least_bytes > 10 * found.roofline.least_bytes


async def test_a_candidate_that_is_right_in_both_cases_is_measured_in_both(
    executor: Executor,
) -> None:
    found = await executor.evaluate(PROBLEM, as_candidate("pytorch", candidate(HONEST, HONEST)))

    assert isinstance(found, Correct), found
    assert ["decode", "prefill"] == list(found.cases)
    assert all(each.latency_ms > 0 for each in found.cases.values())


async def test_a_candidate_that_is_wrong_in_the_second_case_alone_is_wrong(
    executor: Executor,
) -> None:
    wrong = candidate(HONEST, f"1.01 * {HONEST}")

    found = await executor.evaluate(PROBLEM, as_candidate("pytorch", wrong))

    assert isinstance(found, Incorrect), found
    assert "prefill" == found.case


async def test_the_worst_case_counts_if_the_problem_says_so(executor: Executor) -> None:
    slow = f"[{HONEST} for _ in range(60)][-1]"
    worst = Problem(name="worst", source=f"{SOURCE}\nOBJECTIVE = 'worst'\n")

    found = await executor.evaluate(worst, as_candidate("pytorch", candidate(HONEST, slow)))

    assert isinstance(found, Correct), found
    speedups = found.speedups_vs()
    assert speedups["prefill"].ratio < 0.5  # a sixtieth, on a machine that is not busy
    assert "prefill" == least(speedups)
    assert found.speedup_vs().ratio == speedups["prefill"].ratio


KEEPS_ITS_FIRST_SIZE = candidate(HONEST, HONEST).replace(
    "        return",
    "        if not hasattr(self, 'rows'):\n            self.rows = x.shape[0]\n"
    "        x = x if x.shape[0] == self.rows else torch.zeros_like(x)\n        return",
)
KEEPS_EVERY_SIZE = candidate(HONEST, HONEST).replace(
    "        return",
    "        if not hasattr(self, 'ones'):\n            self.ones = {}\n"
    "        if x.shape not in self.ones:\n            self.ones[x.shape] = torch.ones_like(x)\n"
    "        x = x * self.ones[x.shape]\n        return",
)


@pytest.mark.parametrize(
    ("source", "status", "case"),
    [
        (KEEPS_ITS_FIRST_SIZE, "incorrect", "decode then prefill"),
        (KEEPS_EVERY_SIZE, "correct", None),
    ],
    ids=["the first size alone", "every size"],
)
async def test_in_the_final_check_one_process_serves_all_cases(
    executor: Executor, source: str, status: str, case: str | None
) -> None:
    assert isinstance(executor, SharingExecutor)
    shorter = Shorter(executor._judges, executor._limits, executor._tools)
    found = await shorter.evaluate(PROBLEM, as_candidate("pytorch", source), "promote")

    assert (status, case) == (found.status, found.case), found
    assert ("not if one process serves them in turn" in " ".join(found.warnings)) == bool(case)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (
            edited('"prefill": 1024}', '"prompt": 1024}'),
            r"^edited\[prefill\]: line 17: get_inputs raised KeyError: 'prefill'$",
        ),
        (
            edited("return [torch.randn(ROWS[case], 256)]", "return {}"),
            r"^edited\[decode\]: line 16: get_inputs returns a dict; return a list",
        ),
        (
            Problem(
                name="edited",
                source=SOURCE.replace(", x)", ", x, name)").replace("256)]", "256), case]"),
            ),
            r"^edited: get_inputs returns \[<tensor 0>, 'decode'\] in case decode and .*'prefill'\] in case",
        ),
    ],
    ids=["an unknown case", "no list", "another argument"],
)
async def test_a_bad_pair_of_cases_and_inputs_is_the_problems_fault(
    executor: Executor, problem: Problem, said: str
) -> None:
    with pytest.raises(ProblemError, match=said):
        await executor.describe(problem)
