"""Every way to misbehave gets its status within its deadline, and the next candidate is judged normally."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from stark.core.evaluation import Correct, Evaluation, TimedOut
from stark.core.judging import Limits
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.sharing import JudgeWithin
from support.storm import LIMITS

pytest.importorskip("torch")

SLACK_S = 8.0
"""Over the deadline itself: the first candidate prepares the problem, and killing takes its time."""

pytestmark = pytest.mark.asyncio(loop_scope="session")


BRIEF = LIMITS.model_copy(update={"verify_s": 2.5})
"""For candidates that are to reach their deadline."""

Judge = Callable[[str], Awaitable[Evaluation]]


@pytest.fixture(scope="module")
def judge(judge_within: JudgeWithin) -> Judge:
    """Judges each fault once for all tests of this file."""
    found: dict[str, Evaluation] = {}

    async def judged(name: str) -> Evaluation:
        source, status = FAULTS[name]
        if name not in found:
            executor = judge_within(BRIEF if status == "timed_out" else LIMITS)
            found[name] = await executor.evaluate(PROBLEM, as_candidate("cpp", source))
        return found[name]

    return judged


@pytest.mark.parametrize("name", FAULTS)
async def test_every_fault_gets_its_status_and_the_next_candidate_is_judged(
    judge: Judge, judge_within: JudgeWithin, name: str
) -> None:
    begin = time.monotonic()

    evaluation = await judge(name)

    took = time.monotonic() - begin
    assert FAULTS[name][1] == evaluation.status, evaluation
    assert took < LIMITS.verify_s + SLACK_S
    honest = as_candidate("cpp", FAULTS["honest"][0])
    assert isinstance(await judge_within(LIMITS).evaluate(PROBLEM, honest), Correct)


@pytest.mark.parametrize(
    ("name", "phase", "limit_s"),
    [
        ("loops forever on import", "build", BRIEF.build_s),
        ("loops forever", "verify", BRIEF.verify_s),
    ],
)
async def test_a_timeout_says_which_phase_and_limit(
    judge: Judge, name: str, phase: str, limit_s: float
) -> None:
    evaluation = await judge(name)

    assert isinstance(evaluation, TimedOut)
    assert phase == evaluation.phase
    assert limit_s == pytest.approx(evaluation.limit_s, abs=1)


async def test_printed_output_is_kept_in_part(judge: Judge) -> None:
    evaluation = await judge("prints 100 MB")

    assert "bytes left out" in evaluation.output
    assert len(evaluation.output) < 2 * LIMITS.output_kb * 1024


async def test_a_process_left_behind_is_killed(judge: Judge) -> None:
    await judge("leaves a process behind")
    await judge("honest")

    for _ in range(100):  # another worker's test may be running the same candidate
        if b"sleep\x00777\x00" not in command_lines():
            return
        await asyncio.sleep(0.1)
    pytest.fail("the process is still there")


def command_lines() -> list[bytes]:
    """Of every process on this machine."""
    listed = Path("/proc").glob("[0-9]*/cmdline")
    return [path.read_bytes() for path in listed if path.exists()]


@pytest.mark.parametrize("name", ["loops forever on import", "loops forever"])
async def test_a_cancelled_candidate_leaves_the_device(
    judge_within: JudgeWithin, name: str
) -> None:
    patient = judge_within(Limits(timing_budget_s=0.05))  # 180 s to build, 60 s to verify
    hung = asyncio.create_task(patient.evaluate(PROBLEM, as_candidate("cpp", FAULTS[name][0])))
    waits = asyncio.create_task(patient.evaluate(PROBLEM, as_candidate("cpp", FAULTS[name][0])))
    await asyncio.sleep(2.0)
    assert not hung.done()

    hung.cancel()
    waits.cancel()

    begin = time.monotonic()
    honest = as_candidate("cpp", FAULTS["honest"][0])
    assert isinstance(await patient.evaluate(PROBLEM, honest), Correct)
    assert time.monotonic() - begin < SLACK_S


async def test_calls_that_are_each_in_time_may_not_be_slow_together(
    judge_within: JudgeWithin,
) -> None:
    source = FAULTS["honest"][0].replace(
        "        return torch", "        import time; time.sleep(0.5)\n        return torch"
    )

    evaluation = await judge_within(BRIEF).evaluate(PROBLEM, as_candidate("cpp", source))

    assert isinstance(evaluation, TimedOut), evaluation
    assert "verify" == evaluation.phase
    assert BRIEF.verify_s == pytest.approx(evaluation.limit_s, abs=1)
