from __future__ import annotations

import itertools
import os
import random
import time
from typing import Any

import pytest

pytest.importorskip("torch")

from stark.core.measurement import speedup
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.timing.program import Block, Timed, on_core
from stark.evaluator.judge.timing.rounds import Round, time_alone, time_together
from stark.evaluator.judge.timing.window import MIN_ROUNDS


class Sleeper:
    """Stands for a child: every call takes a known time, and its events may lie."""

    def __init__(self, call_s: float, claimed_ms: float | None = None) -> None:
        self.call_s, self.claimed_ms = call_s, claimed_ms
        self.ran_while_stopped = self.stopped = False
        self.waited_s = 0.0
        self.blocks: list[list[int]] = []
        self.placing = "loose"
        self.placings: list[str] = []
        """How its threads were placed in each block."""

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self.ran_while_stopped |= self.stopped
        self.blocks.append(request["slots"])
        self.placings.append(self.placing)
        calls = len(request["slots"])
        if not request["empty"]:
            time.sleep(self.call_s * calls)
        untimed = self.claimed_ms is None or request["head_start"] is None
        claimed = [] if untimed else [self.claimed_ms] * calls
        return {"ok": True, "times_ms": claimed, "at": [], "odd": None}

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
        self.placing = "spread"

    def settle(self) -> None:
        self.placing = "settled"

    def loosen(self) -> None:
        self.placing = "loose"


class Noted:
    """Contents that only note what they are told, and wait a known time for each program."""

    def __init__(self, late_s: tuple[float, float] = (0.0, 0.0)) -> None:
        self.late_s = late_s
        self.seen: list[Round | None] = []
        self.written: list[tuple[int, list[int]]] = []

    def turn(self, last: Round | None) -> None:
        self.seen.append(last)

    def write_alone(self, place: int, number: int) -> None:
        self.written.append((place, [number]))

    def take(self, place: int, block: Block) -> None:
        pass

    def write(self, place: int, slots: list[int]) -> None:
        self.written.append((place, slots))

    def wait(self, place: int, slots: list[int]) -> float:
        return self.late_s[place] * 1e3

    def end(self, last: Round) -> None:
        self.seen.append(last)


def cpu(call_s: float) -> Timed:
    return Timed(Sleeper(call_s), "cpu", 10.0, slots=11)


def cuda(call_s: float, claimed_ms: float) -> Timed:
    return Timed(Sleeper(call_s, claimed_ms), "cuda", 10.0, slots=10)


def together(  # type: ignore[no-untyped-def]
    reference: Timed, candidate: Timed, budget_s: float = 0.3, contents: Noted | None = None
):
    ours, theirs, warnings = time_together(
        candidate, {"eager": reference}, budget_s, random.Random(0), contents or Noted()
    )
    return theirs["eager"], ours, warnings


@pytest.mark.slow
def test_the_ratio_of_two_programs_is_found() -> None:
    reference, candidate, warnings = together(cpu(0.02), cpu(0.01), 0.5)

    assert 2.0 == pytest.approx(reference.latency_ms / candidate.latency_ms, rel=0.1)
    assert 10.0 == pytest.approx(candidate.latency_ms, rel=0.1)
    assert len(reference.samples_ms) == len(candidate.samples_ms) >= MIN_ROUNDS
    assert "judge_wall" == candidate.clock
    assert () == warnings


def test_short_calls_share_a_sample() -> None:
    measured, steady = time_alone(cpu(0.002), 0.1)

    assert measured.calls_per_sample > 5
    assert 2.0 == pytest.approx(measured.latency_ms, rel=0.2)
    assert steady


@pytest.mark.slow
def test_every_call_of_a_block_has_a_slot_of_its_own_written_when_the_untimed_call_is_over() -> (
    None
):
    candidate, contents = Sleeper(0.002), Noted()
    order: list[str] = []
    contents.write = lambda place, slots: order.append(f"write {place}")  # type: ignore[method-assign]
    ask = candidate.ask

    def asked(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        order.append("untimed" if request.get("slots") == [10] else request["do"])
        return ask(request, limit_s)

    candidate.ask = asked  # type: ignore[method-assign]
    candidate.pause = lambda: order.append("stop") or time.perf_counter()  # type: ignore[func-returns-value, method-assign]

    together(cpu(0.002), Timed(candidate, "cpu", 10.0, slots=11), 0.1, contents)

    timed = [slots for slots in candidate.blocks if slots != [10]]
    assert all(len(set(slots)) == len(slots) and 10 not in slots for slots in timed)
    assert len({tuple(slots) for slots in timed[-6:]}) > 1
    assert [None, None] == contents.seen[:2]
    last = contents.seen[-1]
    assert last is not None
    assert candidate.blocks[-1] == last[0].slots == last[1].slots
    one_round = [event for event in order if "1" not in event]
    assert ["stop", "write 0", "untimed", "time", "stop"] == one_round[-5:]


@pytest.mark.slow
def test_work_that_is_done_in_the_untimed_call_counts() -> None:
    candidate = Sleeper(0.0)
    ask = candidate.ask

    def ahead(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        if request["slots"] == [10]:
            time.sleep(0.02)
        return ask(request, limit_s)

    candidate.ask = ahead  # type: ignore[method-assign]

    reference, ours, warnings = together(cpu(0.002), Timed(candidate, "cpu", 10.0, slots=11))

    assert reference.latency_ms / ours.latency_ms < 1.3
    assert any("outside the timed region" in warning for warning in warnings)


def test_who_does_the_calls_of_a_block_together_is_found_by_those_that_come_one_by_one() -> None:
    candidate = Sleeper(0.0)
    ask = candidate.ask

    def batched(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        time.sleep(0.002)
        return ask(request, limit_s)

    candidate.ask = batched  # type: ignore[method-assign]

    reference, ours, warnings = together(cpu(0.002), Timed(candidate, "cpu", 10.0, slots=11))

    assert speedup("eager", reference, ours).low < 1.1
    assert any("by itself a call takes" in warning for warning in warnings)


def test_the_calls_that_come_one_by_one_have_new_inputs_and_no_known_number() -> None:
    contents, numbers = Noted(), []
    contents.write_alone = lambda place, number: numbers.append((place, number))  # type: ignore[method-assign]
    candidate, reference = (Timed(Sleeper(0.0002), "cpu", 10.0, slots=51) for _ in range(2))

    together(reference, candidate, 0.3, contents)

    ours, theirs = ([number for at, number in numbers if at == place] for place in (0, 1))
    assert ours == theirs
    lasts = [number for number, then in zip(ours, [*ours[1:], 0], strict=True) if then == 0]
    assert len(candidate.block_ms) == len(candidate.single_ms) == len(lasts)
    assert len(set(lasts)) > 1


def test_no_call_on_the_kept_slot_has_what_an_earlier_one_had() -> None:
    contents, candidate, events = Noted(), Sleeper(0.0002), []
    ask = candidate.ask

    def noted(place: int, _: object) -> None:
        if place == 0:
            events.append(("written", candidate.stopped))

    def asked(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        if request["slots"] == [50]:
            events.append(("asked", False))
        return ask(request, limit_s)

    candidate.ask = asked  # type: ignore[method-assign]
    contents.write = contents.write_alone = noted  # type: ignore[assignment, method-assign]

    together(
        Timed(Sleeper(0.0002), "cpu", 10.0, 51), Timed(candidate, "cpu", 10.0, 51), 0.3, contents
    )

    calls = [before for before, now in itertools.pairwise(events) if now[0] == "asked"]
    assert {"written"} == {name for name, _ in calls}
    assert {True, False} == {stopped for _, stopped in calls}


@pytest.mark.slow
def test_a_candidate_stands_still_but_for_its_own_samples() -> None:
    reference, candidate = Sleeper(0.002), Sleeper(0.002)
    stopped: list[bool] = []
    contents = Noted()
    ask = reference.ask

    def asked(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        stopped.append(candidate.stopped)
        return ask(request, limit_s)

    reference.ask = asked  # type: ignore[method-assign]
    contents.wait = lambda place, slots: stopped.append(candidate.stopped) or 0.0  # type: ignore[func-returns-value, method-assign]

    together(
        Timed(reference, "cpu", 10.0, 11), Timed(candidate, "cpu", 10.0, 11), contents=contents
    )

    assert {True} == set(stopped)
    assert not candidate.ran_while_stopped
    assert candidate.stopped


@pytest.mark.slow
def test_threads_are_spread_for_the_untimed_call_on_a_cpu_and_those_that_work_settle_there() -> (
    None
):
    candidate, reference = Sleeper(0.002), Sleeper(0.002)
    together(Timed(reference, "cpu", 10.0, slots=11), Timed(candidate, "cpu", 10.0, slots=11), 0.1)

    for program in (candidate, reference):
        untimed = program.placings.index("spread")
        assert {"loose"} == set(program.placings[:untimed])
        assert {"spread", "settled"} == set(program.placings[untimed:])
        spread = zip(program.blocks, program.placings, strict=True)
        assert {(10,)} == {tuple(slots) for slots, placing in spread if placing == "spread"}
        assert "loose" == program.placing


def test_a_gpus_programs_are_not_placed() -> None:
    candidate, reference = Sleeper(0.002, 2.0), Sleeper(0.002, 2.0)
    together(Timed(reference, "cuda", 10.0, slots=4), Timed(candidate, "cuda", 10.0, slots=4), 0.1)

    assert {"loose"} == {*candidate.placings, *reference.placings}


class Crowded(Sleeper):
    """Waits for a core in every so many of its blocks, which take ten times as long."""

    def __init__(self, call_s: float, every: int) -> None:
        super().__init__(call_s)
        self.every = every

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        answer = super().ask(request, limit_s)
        timed = sum(slots != [10] for slots in self.blocks)
        if request["slots"] != [10] and timed % self.every == 0:
            time.sleep(9 * self.call_s * len(request["slots"]))
            self.waited_s += 0.1
        return answer


@pytest.mark.slow
def test_rounds_in_which_the_reference_waited_for_a_core_do_not_count() -> None:
    crowded = Timed(Crowded(0.002, every=4), "cpu", 10.0, slots=11)

    reference, candidate, _ = together(crowded, cpu(0.002))

    assert len(candidate.samples_ms) < len(crowded.block_ms)
    assert max(reference.samples_ms) < 5
    assert reference.latency_ms < 3


@pytest.mark.slow
def test_a_reference_that_always_waited_shows_no_win() -> None:
    crowded = Timed(Crowded(0.002, every=1), "cpu", 10.0, slots=11)

    reference, candidate, warnings = together(crowded, cpu(0.002), 0.1)

    assert speedup("eager", reference, candidate).low < 1
    assert "the machine was busy" in warnings[0]


class Waiting(Sleeper):
    """Its thread waits for a core for a third of every block, which takes no longer for that: its work was given ahead."""

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self.waited_s += self.call_s * len(request["slots"]) / 3
        return super().ask(request, limit_s)


def test_waiting_for_a_core_disturbs_a_gpu_less() -> None:
    programs = [Timed(Waiting(0.01, 10.0), kind, 10.0, 3) for kind in ("cpu", "cuda")]
    programs[0].child.claimed_ms = None  # type: ignore[attr-defined]

    for program in programs:
        program.run_block([0, 1])

    assert [[True], [False]] == [program.disturbed for program in programs]


def test_references_run_again_after_a_candidate_was_found_out() -> None:
    reference, contents = Sleeper(0.002), Noted()

    def found_out(last: Round | None) -> None:
        if last is not None:
            raise ValueError("wrong")

    contents.turn = found_out  # type: ignore[method-assign]

    with pytest.raises(ValueError, match="wrong"):
        together(Timed(reference, "cpu", 10.0, 11), cpu(0.002), contents=contents)

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
    sly = Timed(Sly(in_the_first), "cuda", 10.0, slots=10)

    reference, candidate, warnings = together(cuda(0.002, 2.0), sly)

    found = speedup("eager", reference, candidate)
    assert 3 < found.ratio
    assert found.low < 1.1
    assert any("interval is widened accordingly" in warning for warning in warnings)


def test_a_candidate_that_feigns_slowness_does_not_get_around_dense_blocks() -> None:
    sly = Timed(Feigned(False), "cuda", 10.0, slots=10)

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


@pytest.mark.parametrize("claim", [[], [1.0], [float("nan")] * 2, ["fast"] * 2, None])
def test_times_that_are_none_are_refused(claim: object) -> None:
    child = Sleeper(0.0)
    child.ask = lambda request, limit_s: {"ok": True, "times_ms": claim}  # type: ignore[method-assign]

    with pytest.raises(ChildFailed, match="reported invalid times"):
        Timed(child, "cuda", 1.0, slots=4).sample([0, 1])


def test_the_judge_leaves_the_core_that_it_shared_whatever_happened() -> None:
    allowed = os.sched_getaffinity(0)
    core = min(allowed)

    with pytest.raises(ValueError, match="as it was"), on_core(core):
        assert {core} == os.sched_getaffinity(0)
        raise ValueError("as it was")

    assert allowed == os.sched_getaffinity(0)


def test_a_core_that_is_not_the_judges_to_use_is_not_shared() -> None:
    allowed = os.sched_getaffinity(0)

    with on_core(max(allowed) + 1):
        assert allowed == os.sched_getaffinity(0)
    with on_core(None):
        assert allowed == os.sched_getaffinity(0)
