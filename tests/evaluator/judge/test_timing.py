from __future__ import annotations

import random
import time
from typing import Any

import pytest

pytest.importorskip("torch")

from stark.evaluator.judge.children import ChildFailed
from stark.evaluator.judge.timing import (
    FEWEST_ROUNDS,
    Round,
    Timed,
    time_alone,
    time_together,
)


class Sleeper:
    """Stands for a child: every call and every result takes a known time, and its events may lie."""

    def __init__(
        self, call_s: float, claimed_ms: float | None = None, result_s: float = 0.0
    ) -> None:
        self.call_s, self.claimed_ms, self.result_s = call_s, claimed_ms, result_s
        self.ran_while_stopped = self.stopped = False
        self.blocks: list[list[int]] = []

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self.ran_while_stopped |= self.stopped
        if request["do"] == "collect":
            time.sleep(self.result_s * len(self.blocks[-1]))
            return {"ok": True, "forms": ["a form"]}
        self.blocks.append(request["slots"])
        calls = len(request["slots"])
        time.sleep(self.call_s * calls)
        claimed = [] if self.claimed_ms is None else [self.claimed_ms] * calls
        return {"ok": True, "times_ms": claimed}

    def pause(self) -> None:
        self.stopped = True

    def resume(self) -> None:
        self.stopped = False


class Unchanging:
    """Contents that only count."""

    def __init__(self) -> None:
        self.seen: list[Round | None] = []

    def turn(self, last: Round | None) -> None:
        self.seen.append(last)

    def end(self, last: Round) -> None:
        self.seen.append(last)


def cpu(call_s: float, result_s: float = 0.0) -> Timed:
    return Timed(Sleeper(call_s, result_s=result_s), "cpu", 10.0, slots=11)


def cuda(call_s: float, claimed_ms: float) -> Timed:
    return Timed(Sleeper(call_s, claimed_ms), "cuda", 10.0, slots=10)


def together(reference: Timed, candidate: Timed, budget_s: float = 0.3):  # type: ignore[no-untyped-def]
    ours, theirs, warnings = time_together(
        candidate, {"eager": reference}, budget_s, random.Random(0), Unchanging()
    )
    return theirs["eager"], ours, warnings


def test_the_ratio_of_two_programs_is_found() -> None:
    reference, candidate, warnings = together(cpu(0.02), cpu(0.01), 0.5)

    assert 2.0 == pytest.approx(reference.latency_ms / candidate.latency_ms, rel=0.1)
    assert 10.0 == pytest.approx(candidate.latency_ms, rel=0.1)
    assert len(reference.samples_ms) == len(candidate.samples_ms) >= FEWEST_ROUNDS
    assert "judge_wall" == candidate.clock
    assert () == warnings


def test_short_calls_share_a_sample() -> None:
    measured = time_alone(cpu(0.002), 0.1)

    assert measured.calls_per_sample > 5
    assert 2.0 == pytest.approx(measured.latency_ms, rel=0.2)


def test_every_call_of_a_block_has_a_slot_of_its_own() -> None:
    candidate, contents = Sleeper(0.002), Unchanging()

    time_together(
        Timed(candidate, "cpu", 10.0, slots=11),
        {"eager": cpu(0.002)},
        0.1,
        random.Random(0),
        contents,
    )

    timed = [block for block in candidate.blocks if block != [10]]
    assert all(len(set(block)) == len(block) and 10 not in block for block in timed)
    assert [None, None] == contents.seen[:2]
    assert candidate.blocks[-1] == contents.seen[-1].block  # type: ignore[union-attr]
    assert len({tuple(block) for block in timed[-6:]}) > 1


def test_a_candidate_is_stopped_while_the_reference_runs() -> None:
    reference, candidate = Sleeper(0.002), Sleeper(0.002)
    stopped_during_reference: list[bool] = []
    reference.ask = lambda request, limit_s: (  # type: ignore[method-assign]
        stopped_during_reference.append(candidate.stopped)
        or Sleeper.ask(reference, request, limit_s)
    )

    together(Timed(reference, "cpu", 10.0, 11), Timed(candidate, "cpu", 10.0, 11))

    assert {True} == set(stopped_during_reference)
    assert not candidate.ran_while_stopped
    assert not candidate.stopped


def test_work_that_is_left_for_after_the_clock_counts() -> None:
    reference, candidate, warnings = together(cpu(0.004), cpu(0.001, result_s=0.003))

    assert 1.0 == pytest.approx(reference.latency_ms / candidate.latency_ms, rel=0.2)
    assert "after it said that it was done" in warnings[0]


def test_honest_device_events_are_the_clock() -> None:
    _, candidate, warnings = together(cuda(0.004, 4.0), cuda(0.002, 2.0))

    assert "device_events" == candidate.clock
    assert 2.0 == candidate.latency_ms
    assert () == warnings


def test_forged_device_events_lose_to_the_judges_clock() -> None:
    reference, candidate, warnings = together(cuda(0.004, 4.0), cuda(0.004, 0.01))

    assert "judge_wall" == candidate.clock == reference.clock
    assert 1.0 == pytest.approx(reference.latency_ms / candidate.latency_ms, rel=0.2)
    assert "device events claim" in warnings[0]


@pytest.mark.parametrize("claim", [[], [1.0], [float("nan")] * 2, ["fast"] * 2, None])
def test_times_that_are_none_are_refused(claim: object) -> None:
    child = Sleeper(0.0)
    child.ask = lambda request, limit_s: {"ok": True, "times_ms": claim}  # type: ignore[method-assign]

    with pytest.raises(ChildFailed, match="no time"):
        Timed(child, "cuda", 1.0, slots=4).sample([0, 1])
