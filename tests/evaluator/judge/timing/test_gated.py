"""How programs are timed on a CPU, with programs that only let a clock go on."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

pytest.importorskip("torch")

from stark.core.measurement import Measurement, speedup
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.failures import ChildFailed, ReferenceDied
from stark.evaluator.judge.timing import gated
from stark.evaluator.judge.timing.gated import Contents, Gated, on_core, time_alone, time_together


@pytest.fixture(autouse=True)
def same_order_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gated, "CHANCE", random.Random(0))
    monkeypatch.setattr(gated, "time", CLOCK)
    monkeypatch.setattr(gated, "Placed", lambda pid: SLEEPERS[pid].placed())
    monkeypatch.setattr(gated, "last_core", lambda pid: None)


class Clock:
    """A clock that goes on when it is told to, and a little whenever it is read."""

    now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        self.sleep(1e-5)
        return self.now

    monotonic = perf_counter


CLOCK = Clock()

SLEEPERS: dict[int, Sleeper] = {}
"""By made-up numbers of their processes."""


class Sleeper:
    """Stands for a child: every call takes a known time."""

    failed = Child.failed
    is_reference = False

    def __init__(self, call_s: float) -> None:
        self.call_s = call_s
        self.runner_pid = len(SLEEPERS)
        SLEEPERS[self.runner_pid] = self
        self.stopped = False
        self.calls = 0
        self.events: list[str] = []
        """What happened to it, in order."""

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        assert not self.stopped
        self.events.append("empty" if request["empty"] else "call")
        if not request["empty"]:
            self.calls += 1
            CLOCK.sleep(self.call_s)
        return {"ok": True, "at": [], "odd": None}

    def pause(self) -> float:
        self.stopped = True
        return CLOCK.perf_counter()

    def go_on(self) -> None:
        self.stopped = False

    def stood_still(self) -> bool:
        return True

    def placed(self) -> Sleeper:
        self.events.append("placed")
        return self

    def settle(self) -> None:
        self.events.append("settle")

    def loosen(self) -> None:
        self.events.append("loosen")


class Noted(Contents):
    """Contents that note what they are told, and whether every program stood still meanwhile."""

    def __init__(self, *programs: Sleeper) -> None:
        self.programs = programs
        self.turns: list[int] = []
        self.written: list[tuple[int, int]] = []
        self.taken: list[tuple[int, int]] = []
        self.ended = 0

    def turn(self, calls: int) -> int:
        self._all_stand()
        self.turns.append(calls)
        return calls

    def write(self, place: int, number: int) -> None:
        self._all_stand()
        self.written.append((place, number))
        self.programs[place].events.append("write")

    def read(self, place: int, number: int, answer: dict[str, Any]) -> None:
        self._all_stand()
        self.taken.append((place, number))

    def end(self) -> None:
        self.ended += 1

    def _all_stand(self) -> None:
        assert all(program.stopped for program in self.programs)


def together(
    reference: Sleeper,
    candidate: Sleeper,
    budget_s: float = 0.2,
    most_calls: int = 50,
    contents: Noted | None = None,
) -> tuple[Measurement, Measurement]:
    ours, theirs = time_together(
        Gated(candidate, 10.0),
        {"eager": Gated(reference, 10.0)},
        budget_s,
        most_calls,
        contents or Noted(candidate, reference),
    )
    return theirs["eager"], ours


def test_the_ratio_of_two_programs_is_found() -> None:
    reference, candidate = together(Sleeper(0.01), Sleeper(0.005), budget_s=1.0)

    assert 2.0 == pytest.approx(reference.latency_ms / candidate.latency_ms, rel=0.2)
    assert len(reference.samples_ms) == len(candidate.samples_ms) >= gated.MIN_ROUNDS
    assert ("judge_wall", "warm") == (candidate.clock, candidate.cache)


def test_every_call_has_inputs_that_are_written_while_all_programs_stand_still() -> None:
    candidate, reference = Sleeper(0.001), Sleeper(0.001)
    contents = Noted(candidate, reference)

    together(reference, candidate, most_calls=5, contents=contents)

    for program in (candidate, reference):
        calls = [event for event in program.events if event in ("write", "call")]
        assert ["write", "call"] * program.calls == calls
    assert {5} == set(contents.turns[1:])
    for place in (0, 1):
        visits = [number for at, number in contents.written if at == place][gated.WARMUPS :]
        assert [0, 1, 2, 3, 4, 5] == visits[:6]
        taken = [number for at, number in contents.taken if at == place][gated.WARMUPS - 1 :]
        assert [1, 2, 3, 4, 5] == taken[:5]
    assert 1 == contents.ended


def test_a_candidate_that_was_timed_stays_stopped_and_references_go_on() -> None:
    candidate, reference = Sleeper(0.001), Sleeper(0.001)

    together(reference, candidate)

    assert candidate.stopped
    assert not reference.stopped


def test_references_go_on_after_a_candidate_was_found_out() -> None:
    candidate, reference = Sleeper(0.001), Sleeper(0.001)
    contents = Noted(candidate, reference)

    def found_out(place: int, number: int, answer: object) -> None:
        raise ValueError("wrong")

    contents.read = found_out  # type: ignore[method-assign]

    with pytest.raises(ValueError, match="wrong"):
        together(reference, candidate, contents=contents)

    assert not reference.stopped
    assert "loosen" in (*candidate.events[-1:], *reference.events[-1:])


def test_a_candidate_that_feigns_slowness_changes_no_number_of_calls_but_its_own() -> None:
    candidate, reference = Sleeper(0.06), Sleeper(0.002)  # one call of it is longer than a visit
    contents = Noted(candidate, reference)

    together(reference, candidate, contents=contents)

    calls = contents.turns[-1]
    assert 3 < calls
    assert calls == max(number for place, number in contents.taken if place == 1)
    assert 1 == max(number for place, number in contents.taken if place == 0)


def test_what_follows_the_answer_counts_until_the_program_stands_still() -> None:
    candidate = Sleeper(0.0)
    pause = candidate.pause

    def late() -> float:
        CLOCK.sleep(0.004)
        return pause()

    candidate.pause = late  # type: ignore[method-assign]

    _, ours = together(Sleeper(0.004), candidate)

    assert 4.0 == pytest.approx(ours.latency_ms, rel=0.3)


def test_what_comes_before_the_request_counts_from_when_the_program_goes_on() -> None:
    candidate = Sleeper(0.0)
    go_on = candidate.go_on

    def early() -> None:
        go_on()
        CLOCK.sleep(0.004)

    candidate.go_on = early  # type: ignore[method-assign]

    _, ours = together(Sleeper(0.004), candidate)

    assert 4.0 == pytest.approx(ours.latency_ms, rel=0.3)


def test_a_quick_answer_is_no_win() -> None:
    """The reference's call that does nothing takes 3 ms. A candidate that saves them gains nothing by it."""
    reference, candidate = Sleeper(0.001), Sleeper(0.001)
    ask = reference.ask

    def slowly(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        CLOCK.sleep(0.003)
        return ask(request, limit_s)

    reference.ask = slowly  # type: ignore[method-assign]

    theirs, ours = together(reference, candidate)

    assert speedup("eager", theirs, ours).low < 1


class Restless(Sleeper):
    """Seems to have run while it was stopped, at times or always."""

    def __init__(self, call_s: float, every: int) -> None:
        super().__init__(call_s)
        self.every, self.looks = every, 0

    def stood_still(self) -> bool:
        self.looks += 1
        return self.looks % self.every != 0


class Moving(Sleeper):
    """Runs for a moment after every second event of one kind, and makes the call that it so gains an advantage in quickly."""

    def __init__(self, call_s: float, after: str) -> None:
        super().__init__(call_s)
        self.after, self.count, self.moved = after, 0, False

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self.call_s, usual = (0.0 if self._gains() else self.call_s), self.call_s
        try:
            return super().ask(request, limit_s)
        finally:
            self.call_s = usual

    def _gains(self) -> bool:
        self.count += 1
        return self.count % 2 == 0

    def stood_still(self) -> bool:
        moves = self.count % 2 == (1 if self.after == "write" else 0)
        self.moved = moves and [self.after] == self.events[-1:]
        return not self.moved

    def pause(self) -> float:
        self.moved = False
        return super().pause()


@pytest.mark.parametrize("after", ["write", "call"])
def test_calls_around_which_a_program_ran_do_not_count(after: str) -> None:
    """It looks at its inputs beforehand, or writes its results afterwards, and answers these calls at once."""
    candidate, reference = Moving(0.004, after), Sleeper(0.004)

    _, ours = together(reference, candidate, most_calls=6)

    assert not candidate.moved, "it is stopped again"
    assert 4.0 == pytest.approx(min(ours.samples_ms), rel=0.3)


def test_a_program_that_runs_after_all_of_its_calls_is_refused() -> None:
    with pytest.raises(ChildFailed, match="run while the judge has stopped them"):
        together(Sleeper(0.001), Restless(0.001, every=2), most_calls=5)


@pytest.mark.parametrize(("moves", "refused"), [(2, False), (1000, True)])
def test_rounds_in_which_the_candidate_moved_beside_a_reference_do_not_count(
    moves: int, refused: bool
) -> None:
    candidate, reference = Sleeper(0.001), Sleeper(0.004)
    left = iter(range(moves))
    ask, own = reference.ask, candidate.ask

    def slowed(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        candidate.stood_still = lambda: next(left, None) is None  # type: ignore[method-assign]
        return ask(request, limit_s)

    def honest(request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        candidate.stood_still = lambda: True  # type: ignore[method-assign]
        return own(request, limit_s)

    reference.ask, candidate.ask = slowed, honest  # type: ignore[method-assign]
    contents = Noted(candidate, reference)

    if refused:
        with pytest.raises(ChildFailed, match="run while the judge has stopped them"):
            together(reference, candidate, most_calls=2, contents=contents)
    else:
        theirs, ours = together(reference, candidate, budget_s=1.0, most_calls=2, contents=contents)
        assert len(theirs.samples_ms) == len(ours.samples_ms) >= gated.MIN_ROUNDS


def test_a_program_that_never_stands_still_is_refused() -> None:
    with pytest.raises(ChildFailed, match="run while the judge has stopped them"):
        together(Sleeper(0.001), Restless(0.001, every=1))


def test_a_reference_that_never_stands_still_is_not_blamed_on_the_candidate() -> None:
    reference = Restless(0.001, every=1)
    reference.is_reference = True

    with pytest.raises(ReferenceDied, match="run while the judge has stopped them"):
        together(reference, Sleeper(0.001))


def test_threads_that_work_in_the_first_call_of_a_visit_are_pinned_for_the_others() -> None:
    candidate, reference = Sleeper(0.002), Sleeper(0.002)

    together(reference, candidate, most_calls=2)

    for program in (candidate, reference):
        first = program.events.index("placed")
        one = ["placed", "write", "call", "settle", "write", "call", "write", "call", "loosen"]
        assert one == program.events[first : first + len(one)]


def test_a_slow_program_is_timed_in_three_rounds_and_not_warmed_up_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gated, "LONG_MS", 10.0)
    candidate = Sleeper(0.02)

    _, ours = together(Sleeper(0.02), candidate, budget_s=0.02)

    assert gated.MIN_ROUNDS_WHEN_SLOW == len(ours.samples_ms)
    assert gated.WARMUPS + gated.MIN_ROUNDS_WHEN_SLOW == candidate.calls
    assert 1 == candidate.events.count("settle"), "in the first round, which tells that it is slow"


def test_a_race_has_three_short_rounds_and_none_to_warm_up() -> None:
    candidate, reference = Sleeper(0.001), Sleeper(0.001)
    contents = Noted(candidate, reference)

    ours, theirs = time_together(
        Gated(candidate, 10.0), {"eager": Gated(reference, 10.0)}, 60.0, 50, contents, race=True
    )

    rounds = 1 + gated.MIN_ROUNDS_WHEN_SLOW  # the first one tells how long a call takes
    assert rounds == len(contents.turns)
    assert contents.turns[-1] <= gated.RACE_VISIT_MS / gated.BETWEEN_MS
    assert 3 == len(ours.samples_ms) == len(theirs["eager"].samples_ms)
    assert 1 == contents.ended, "results are compared as ever"


def test_one_program_alone_is_timed_on_the_inputs_that_it_has() -> None:
    child = Sleeper(0.002)

    found = time_alone(child, 10.0, 0.1, Contents())

    assert 2.0 == pytest.approx(found.latency_ms, rel=0.3)
    assert not child.stopped


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
