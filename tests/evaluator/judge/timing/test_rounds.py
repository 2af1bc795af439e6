from __future__ import annotations

import random
import time
from typing import Any

import pytest

pytest.importorskip("torch")

from stark.core.measurement import speedup
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.timing.program import HEAD_START_CYCLES, Block, Timed
from stark.evaluator.judge.timing.rounds import Round, time_together


class Sleeper:
    """Stands for a child: every call takes a known time, and its events may lie."""

    def __init__(self, call_s: float, claimed_ms: float | None = None) -> None:
        self.call_s, self.claimed_ms = call_s, claimed_ms
        self.ran_while_stopped = self.stopped = False
        self.waited_s = 0.0
        self.blocks: list[list[int]] = []

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self.ran_while_stopped |= self.stopped
        self.blocks.append(request["slots"])
        calls = len(request["slots"])
        if not request["empty"]:
            time.sleep(self.call_s * calls)
        untimed = self.claimed_ms is None or request["head_start"] is None
        claimed = [] if untimed else [self.claimed_ms] * calls
        return {"ok": True, "times_ms": claimed, "odd": None}

    def pause(self) -> float:
        self.stopped = True
        return time.perf_counter()

    def waits_s(self) -> dict[str, float]:
        return {"1": self.waited_s}

    def core(self) -> None:
        return None

    def resume(self) -> None:
        self.stopped = False

    def spread(self) -> None:
        raise AssertionError("a GPU's programs are not placed")

    settle = loosen = spread


class Noted:
    """Contents that only note what they are told, and wait a known time for each program."""

    def __init__(self, late_s: tuple[float, float] = (0.0, 0.0)) -> None:
        self.late_s = late_s
        self.seen: list[Round | None] = []
        self.written: list[tuple[int, list[int]]] = []

    def turn(self, last: Round | None) -> None:
        self.seen.append(last)

    def write_alone(self, place: int) -> None:
        self.written.append((place, []))

    def take(self, place: int, block: Block) -> None:
        pass

    def write(self, place: int, slots: list[int]) -> None:
        self.written.append((place, slots))

    def wait(self, place: int, slots: list[int]) -> float:
        return self.late_s[place] * 1e3

    def end(self, last: Round) -> None:
        self.seen.append(last)


def cuda(call_s: float, claimed_ms: float) -> Timed:
    return Timed(Sleeper(call_s, claimed_ms), 10.0, slots=10)


def together(  # type: ignore[no-untyped-def]
    reference: Timed, candidate: Timed, budget_s: float = 0.3, contents: Noted | None = None
):
    ours, theirs, warnings = time_together(
        candidate, {"eager": reference}, budget_s, random.Random(0), contents or Noted()
    )
    return theirs["eager"], ours, warnings


@pytest.mark.slow
def test_a_candidate_stands_still_but_for_its_own_samples() -> None:
    reference, candidate = Sleeper(0.002, 2.0), Sleeper(0.002, 2.0)
    stopped: list[bool] = []
    contents = Noted()
    ask = reference.ask

    def asked(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        stopped.append(candidate.stopped)
        return ask(request, limit_s)

    reference.ask = asked  # type: ignore[method-assign]
    contents.wait = lambda place, slots: stopped.append(candidate.stopped) or 0.0  # type: ignore[func-returns-value, method-assign]

    together(Timed(reference, 10.0, 11), Timed(candidate, 10.0, 11), contents=contents)

    assert {True} == set(stopped)
    assert not candidate.ran_while_stopped
    assert candidate.stopped


class Crowded(Sleeper):
    """Waits for a core in every so many of its blocks, whose events claim ten times as long."""

    def __init__(self, every: int) -> None:
        super().__init__(0.002, 2.0)
        self.every = every
        self.timed = 0

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        answer = super().ask(request, limit_s)
        if request["head_start"] == HEAD_START_CYCLES:
            self.timed += 1
            if self.timed % self.every == 0:
                self.waited_s += 0.1
                return {**answer, "times_ms": [10 * took for took in answer["times_ms"]]}
        return answer


def test_rounds_in_which_the_reference_waited_for_a_core_do_not_count() -> None:
    crowded = Timed(Crowded(every=4), 10.0, slots=10)

    reference, candidate, _ = together(crowded, cuda(0.002, 2.0))

    assert len(candidate.samples_ms) < len(crowded.block_ms)
    assert 2.0 == max(reference.samples_ms)


def test_a_reference_that_always_waited_shows_no_win() -> None:
    crowded = Timed(Crowded(every=1), 10.0, slots=10)

    reference, candidate, warnings = together(crowded, cuda(0.002, 2.0), 0.1)

    assert speedup("eager", reference, candidate).low < 1
    assert any("the machine was busy" in warning for warning in warnings)


def test_a_third_of_a_block_spent_waiting_for_a_core_disturbs_nothing() -> None:
    """The work was given ahead."""
    child = Sleeper(0.01, 10.0)
    ask = child.ask

    def waiting(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        child.waited_s += child.call_s * len(request["slots"]) / 3
        return ask(request, limit_s)

    child.ask = waiting  # type: ignore[method-assign]
    program = Timed(child, 10.0, 3)

    program.run_block([0, 1])

    assert [False] == program.disturbed


def test_references_run_again_after_a_candidate_was_found_out() -> None:
    reference, contents = Sleeper(0.002, 2.0), Noted()

    def found_out(last: Round | None) -> None:
        if last is not None:
            raise ValueError("wrong")

    contents.turn = found_out  # type: ignore[method-assign]

    with pytest.raises(ValueError, match="wrong"):
        together(Timed(reference, 10.0, 11), cuda(0.002, 2.0), contents=contents)

    assert not reference.stopped


def test_work_that_is_left_for_after_the_clock_counts() -> None:
    contents = Noted(late_s=(0.009, 0.0))

    reference, candidate, warnings = together(cuda(0.004, 4.0), cuda(0.001, 1.0), contents=contents)

    assert 1.0 == pytest.approx(reference.latency_ms / candidate.latency_ms, rel=0.2)
    assert any("after the candidate reported completion" in warning for warning in warnings)


def test_honest_device_events_are_the_clock() -> None:
    _, candidate, warnings = together(cuda(0.004, 4.0), cuda(0.002, 2.0))

    assert "device_events" == candidate.clock
    assert 2.0 == candidate.latency_ms
    assert () == warnings


class Sly(Sleeper):
    """Its events claim next to nothing: a block's calls are done in the first, or each of them before its events are recorded."""

    def __init__(self, together: bool = False) -> None:
        super().__init__(0.002, 0.01)
        self.together = together

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        calls = len(request["slots"])
        dense = request["head_start"] is None
        if self.together:
            request = {**request, "slots": request["slots"][:1]}
        self.claimed_ms = 2.0 if self.together and calls == 1 else 0.01
        self.call_s = 0.002 if dense or self.together else 1e-5
        answer = super().ask(request, limit_s)
        return {**answer, "times_ms": answer["times_ms"] * (calls if self.together else 1)}


class Feigned(Sly):
    """Claims to be slow until it is timed, so that blocks have one call."""

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        answer = super().ask(request, limit_s)
        claim = 40.0 if len(self.blocks) < 7 else 0.01
        return {**answer, "times_ms": [claim for _ in answer["times_ms"]]}


@pytest.mark.parametrize("in_the_first", [True, False])
def test_what_device_events_do_not_show_is_found_in_calls_that_come_alone_or_closely(
    in_the_first: bool,
) -> None:
    sly = Timed(Sly(in_the_first), 10.0, slots=10)

    reference, candidate, warnings = together(cuda(0.002, 2.0), sly)

    found = speedup("eager", reference, candidate)
    assert 3 < found.ratio
    assert found.low < 1.1
    assert any("interval is widened accordingly" in warning for warning in warnings)


def test_a_candidate_that_feigns_slowness_does_not_get_around_dense_blocks() -> None:
    sly = Timed(Feigned(False), 10.0, slots=10)

    reference, candidate, _ = together(cuda(0.002, 2.0), sly)

    assert 1 == candidate.calls_per_sample
    assert speedup("eager", reference, candidate).low < 1.1


def test_long_calls_are_not_asked_for_in_another_way() -> None:
    candidate = cuda(0.01, 10.0)

    together(cuda(0.01, 10.0), candidate)

    assert not candidate.single_ms and not candidate.dense_ms
    assert candidate.block_ms


@pytest.mark.slow
def test_forged_device_events_lose_to_the_judges_clock() -> None:
    reference, candidate, warnings = together(cuda(0.004, 4.0), cuda(0.004, 0.01))

    assert "judge_wall" == candidate.clock == reference.clock
    assert 1.0 == pytest.approx(reference.latency_ms / candidate.latency_ms, rel=0.2)
    assert "device events report" in warnings[0]


@pytest.mark.parametrize(
    "claim", [[], [1.0], [float("nan")] * 2, [10**400] * 2, ["fast"] * 2, None]
)
def test_times_that_are_none_are_refused(claim: object) -> None:
    child = Sleeper(0.0)
    child.ask = lambda request, limit_s: {"ok": True, "times_ms": claim}  # type: ignore[method-assign]

    with pytest.raises(ChildFailed, match="reported invalid times"):
        Timed(child, 1.0, slots=4).sample([0, 1])
