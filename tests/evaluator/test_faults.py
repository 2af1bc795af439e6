"""Every way to misbehave gets its status within its deadline, and the next candidate is judged normally."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stark.core.evaluation import Correct, TimedOut
from stark.evaluator.executors import Executor
from stark.testing.candidates import FAULTS, PROBLEM, as_candidate
from stark.testing.executor import JudgeWithin
from stark.testing.storm import LIMITS

pytest.importorskip("torch")

SLACK_S = 8.0
"""Over the deadline itself: the first candidate prepares the problem, and killing takes its time."""

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def executor(judge_within: JudgeWithin) -> Executor:
    return judge_within(LIMITS)


@pytest.mark.parametrize("name", FAULTS)
async def test_every_fault_gets_its_status_and_the_next_candidate_is_judged(
    executor: Executor, name: str
) -> None:
    source, status = FAULTS[name]
    begin = time.monotonic()

    evaluation = await executor.evaluate(PROBLEM, as_candidate("cpp", source))

    took = time.monotonic() - begin
    assert status == evaluation.status, evaluation
    assert took < LIMITS.verify_s + SLACK_S
    honest = await executor.evaluate(PROBLEM, as_candidate("cpp", FAULTS["honest"][0]))
    assert isinstance(honest, Correct)


async def test_a_timeout_says_which_phase_and_limit(executor: Executor) -> None:
    endless = as_candidate("cpp", FAULTS["loops forever"][0])

    evaluation = await executor.evaluate(PROBLEM, endless)

    assert isinstance(evaluation, TimedOut)
    assert "verify" == evaluation.phase
    assert LIMITS.verify_s == pytest.approx(evaluation.limit_s, abs=1)


async def test_printed_output_is_kept_in_part(executor: Executor) -> None:
    loud = as_candidate("cpp", FAULTS["prints 100 MB"][0])

    evaluation = await executor.evaluate(PROBLEM, loud)

    assert "bytes left out" in evaluation.output
    assert len(evaluation.output) < 2 * LIMITS.output_kb * 1024


async def test_a_process_left_behind_is_killed(executor: Executor) -> None:
    await executor.evaluate(PROBLEM, as_candidate("cpp", FAULTS["leaves a process behind"][0]))
    await executor.evaluate(PROBLEM, as_candidate("cpp", FAULTS["honest"][0]))

    assert b"sleep\x00777\x00" not in command_lines()


def command_lines() -> list[bytes]:
    """Of every process on this machine."""
    listed = Path("/proc").glob("[0-9]*/cmdline")
    return [path.read_bytes() for path in listed if path.exists()]


async def test_calls_that_are_each_in_time_may_not_be_slow_together(executor: Executor) -> None:
    source = FAULTS["honest"][0].replace(
        "        return torch", "        import time; time.sleep(1)\n        return torch"
    )

    evaluation = await executor.evaluate(PROBLEM, as_candidate("cpp", source))

    assert isinstance(evaluation, TimedOut), evaluation
    assert "verify" == evaluation.phase
    assert LIMITS.verify_s == pytest.approx(evaluation.limit_s, abs=1)
