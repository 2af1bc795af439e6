"""Times programs on a CPU. A program runs only while the judge's clock runs, one call at a time.

For each call, the judge writes new inputs while the program is stopped, starts its clock, continues the program,
requests the call, waits for the answer and stops the program. The clock ends with the stop, and only then are the
results read. So everything that depends on the inputs, and everything that changes the results, is timed.

A visit is a series of such calls of one program. In a round every program is visited once, in random order, with
the same inputs. A visit's sample is the median of its calls, minus the time of a call that does nothing, measured
on a reference. The interval's end that favours the candidate takes nothing off: a candidate may answer faster.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType

from stark.core.measurement import Measurement
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.placing import Placed, one_thread
from stark.evaluator.judge.processes.watch import last_core

VISIT_MS, BETWEEN_MS = 25.0, 2.0
"""Target duration of a visit, and about what the judge does between two calls, both in milliseconds."""

WARMUPS = 3
"""Calls of each program in the first round, which tells how long they take. A visit begins with a call that is not timed,
since others have used the caches."""

LONG_MS = 500.0
"""If a call of the reference takes this long, neither rounds nor calls are spent on warming up, and no thread is pinned:
cold caches and a thread on the wrong core cost little of it."""

MIN_ROUNDS, MIN_ROUNDS_WHEN_SLOW = 12, 3
"""Rounds for each reference before timing may end, so 24 in a final check, which has two references: then the interval
bears some disturbed rounds. And the rounds for programs so slow that these take three budgets."""

OVERTIME_FACTOR = 3
"""Budgets of time after which timing ends with `MIN_ROUNDS_WHEN_SLOW` rounds."""

RACE_VISIT_MS = 8.0
"""Target duration of a visit in a race, which has MIN_ROUNDS_WHEN_SLOW rounds and none to warm up: it times a program again
in other processes. Most of a window goes into inputs and results, which the judge makes and compares for every call."""

EMPTY_CALLS = 15
"""Calls that do nothing, whose median is subtracted."""

PROCESS_SHARE = 0.2
"""Two processes that run the same program differ steadily by up to this share, depending on where their memory lies.
`docs/measuring.md` has the measurements."""

RESTLESS_ROUNDS = 3
"""A candidate may use processor time while references are timed in this many rounds more than there are undisturbed
ones, because Linux's accounts are noisy."""

RESTLESS = "its processes run while the judge has stopped them"

CHANCE = random.SystemRandom()
"""Decides in which order programs are visited."""


class Contents:
    """Inputs and results of the calls; as it stands, of a program that is timed on the inputs that it already has.

    `place` is a program's number; the candidate's is 0. Calls of a round are numbered; call 0 warms up. All methods are
    called while programs are stopped.
    """

    uncounted: Mapping[int, str | None] = MappingProxyType({})
    """The calls of this round whose times do not count, and the way in which each is made if it is not a simple one."""

    def __init__(self, place_state: Callable[[], bool] = lambda: False) -> None:
        self._place_state = place_state

    def turn(self, calls: int) -> int:
        """Check the results of the previous round, if any, and choose inputs for calls 0 to `calls`.

        Returns the number of the last call, which is larger if calls whose times do not count are among the others.
        """
        return calls

    def write(self, place: int, number: int) -> bool:
        """Write the inputs of a call. Returns whether what forward finds in the module is written there too."""
        return self._place_state()

    def read(self, place: int, number: int, answer: Message) -> None:
        """Read the results of a call."""

    def end(self) -> None:
        """Check the results of the last round."""


@dataclass
class Gated:
    """One program that is being timed. Its process must be stopped."""

    child: Child
    limit_s: float
    long: bool = False
    """Whether calls are so long that they need no warming up."""

    samples_ms: list[float] = field(default_factory=list)
    """Per visit, the median milliseconds of a call by the judge's clock."""

    def call(
        self, empty: bool = False, mode: str | None = None, placed: bool = False
    ) -> tuple[float, Message]:
        """Let the program make a call. Returns the milliseconds from before it continues until it has stopped, and its answer."""
        begin = time.perf_counter()
        self.child.go_on()
        try:
            request = {"do": "time once", "empty": empty, "mode": mode, "placed": placed}
            answer = self.child.ask(request, self.limit_s)
        finally:
            stopped = self.child.pause()
        return (stopped - begin) * 1e3, answer

    def visit(self, place: int, calls: int, contents: Contents, whole: bool) -> float:
        """Make up to `calls` timed calls. Returns their median in milliseconds.

        Only a `whole` visit makes all of them, however long they take. The time of a call does not count if the program
        ran when its inputs had been written, or between its end and the reading of its results.
        Threads are pinned, because Linux may wake two on one core, which then wait for each other.
        """
        taken: list[float] = []
        placed = Placed(self.child.runner_pid)
        try:
            if not self.long:
                contents.write(place, 0)
                self.call()
                placed.settle()
            with on_core(last_core(self.child.runner_pid)):
                for number in range(1, calls + 1):
                    written = contents.write(place, number)
                    in_time = self.stands()
                    call_ms, answer = self.call(False, contents.uncounted.get(number), written)
                    contents.read(place, number, answer)
                    if self.stands() and in_time and number not in contents.uncounted:
                        taken.append(call_ms)
                    if not whole and sum(taken) > 2 * VISIT_MS:
                        break
        finally:
            placed.loosen()
        if not taken:
            raise self.child.failed("restless", RESTLESS)
        return median(taken)

    def stands(self) -> bool:
        """Whether the program has stood still since it was stopped. If not, it is stopped again."""
        stood = self.child.stood_still()
        if not stood:
            self.child.pause()
        return stood

    def empty_ms(self) -> float:
        """The median milliseconds of a call that does nothing."""
        with on_core(last_core(self.child.runner_pid)):
            return median(self.call(empty=True)[0] for _ in range(EMPTY_CALLS))

    def measurement(self, calls: int, empty_ms: float) -> Measurement:
        """The measurement of the program from visits of `calls` calls, if an empty call takes `empty_ms`."""
        samples_ms = tuple(each - empty_ms if each > empty_ms else each for each in self.samples_ms)
        return Measurement(
            samples_ms=samples_ms,
            calls_per_sample=calls,
            warmups=WARMUPS,
            clock="judge_wall",
            cache="warm",
            resolution_ms=empty_ms + PROCESS_SHARE * median(samples_ms),
        )


def time_alone(child: Child, limit_s: float, budget_s: float, contents: Contents) -> Measurement:
    """Time one program by itself, on the inputs in its memory, for about `budget_s` seconds."""
    measurement, _ = time_together(Gated(child, limit_s), {}, budget_s, sys.maxsize, contents)
    child.go_on()
    return measurement


def time_together(
    candidate: Gated,
    references: Mapping[str, Gated],
    budget_s: float,
    most_calls: int,
    contents: Contents,
    race: bool = False,
) -> tuple[Measurement, dict[str, Measurement]]:
    """Time all programs in rounds until `budget_s` seconds have passed, or in the few rounds of a `race`.

    A visit has at most `most_calls` timed calls; their number depends on the first reference only, or on
    the candidate if there is none. Returns the candidate's measurement and the references' by name. Raises whatever
    `contents` raises. The candidate is left stopped. `docs/measuring.md` describes the method.
    """
    everyone, first = [candidate, *references.values()], min(1, len(references))
    try:
        for program in everyone:
            program.child.pause()
        with one_thread():  # more would spin on the program's cores after each copy
            warm_ms, _ = _round(everyone, min(most_calls, WARMUPS - 1), contents)
            call_ms = warm_ms[first]
            target_ms = RACE_VISIT_MS if race else min(VISIT_MS, 1e3 * budget_s)
            calls = min(most_calls, max(1, round(target_ms / (call_ms + BETWEEN_MS))))
            empty_ms = everyone[first].empty_ms()
            for program in everyone:
                program.long = call_ms >= LONG_MS
            if call_ms < LONG_MS and not race:
                _round(everyone, calls, contents)
            _rounds(everyone, calls, 0.0 if race else budget_s, contents)
    finally:  # the references serve the next candidate
        for reference in references.values():
            reference.child.go_on()
    contents.end()
    ours, *theirs = (program.measurement(calls, empty_ms) for program in everyone)
    return ours, dict(zip(references, theirs, strict=True))


def _rounds(everyone: Sequence[Gated], calls: int, budget_s: float, contents: Contents) -> None:
    """Run rounds until there are enough."""
    begin, count, restless, enough = time.monotonic(), 0, 0, MIN_ROUNDS * max(1, len(everyone) - 1)
    while count < enough or time.monotonic() - begin < budget_s:
        found, stood = _round(everyone, calls, contents)
        if not stood:
            restless += 1
            if restless > RESTLESS_ROUNDS + count:
                raise everyone[0].child.failed("restless", RESTLESS)
            continue
        count += 1
        for program, taken_ms in zip(everyone, found, strict=True):
            program.samples_ms.append(taken_ms)
        if time.monotonic() - begin > OVERTIME_FACTOR * budget_s:
            enough = MIN_ROUNDS_WHEN_SLOW


def _round(everyone: Sequence[Gated], calls: int, contents: Contents) -> tuple[list[float], bool]:
    """Visit each program once, in random order. Returns the median milliseconds of each one's calls, and whether the
    candidate stood still while references were visited; otherwise it may have slowed them.
    """
    calls = contents.turn(calls)
    taken_ms, stood = {}, True
    for place in CHANCE.sample(range(len(everyone)), len(everyone)):
        taken_ms[place] = everyone[place].visit(place, calls, contents, whole=place > 0)
        if place > 0 and not everyone[0].stands():
            stood = False
    return [taken_ms[place] for place in range(len(everyone))], stood


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Run the judge's thread on `core`, where the program's main thread waits for it, so that it displaces no other thread."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, allowed & {core} or allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
