"""Times programs on a GPU in turns, in random order, and checks the clocks that a candidate could forge.

In a round, each program runs one block: a series of calls that the judge requests and times
together. Every call has its own slot, a set of inputs and outputs in memory that the program shares
with the judge. The candidate is stopped except while it is being timed, and its inputs are written
while it is stopped. Work outside the timed calls shows if the judge waits longer for the candidate's
results than for a reference's.

Device events in the program's process time each call. Hostile code could forge the events, so they
are compared with the judge's wall clock, which runs around each block. Before each timed call the L2
cache is flushed and the device is kept busy. The time of this preparation does not count, so a
program could hide work in it. Therefore each round starts with dense blocks, whose calls have no
preparation and are timed by the judge's clock alone. Some calls are also requested one at a time,
each on inputs that arrive after the previous call has ended. Such a single call is slower than a call
in a block if the program batches a block's calls.

`gated.py` times programs on a CPU.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from stark.core.measurement import Measurement
from stark.evaluator.judge.timing.program import Block, Timed
from stark.evaluator.judge.timing.window import MIN_ROUNDS, MIN_ROUNDS_WHEN_SLOW, Window

MAX_ROUNDS = 100
"""Maximum number of counted rounds."""

HIDEABLE_MS = 2.0
"""A call of at least these milliseconds would gain little if it hid work in its preparation."""

OVERTIME_FACTOR = 3
"""Factor by which the number of rounds and the duration of timing may exceed their limits if some
rounds do not count."""


Round = Sequence[Block]
"""The blocks of one round, one per program that takes part in it. The candidate's block comes first."""


class Contents(Protocol):
    """The inputs and outputs of timed calls. `place` is a program's number; the candidate's number is 0."""

    def turn(self, last: Round | None) -> None:
        """Called before every round. Chooses inputs. May check results of `last`, the previous round, if any."""

    def write_alone(self, place: int) -> None:
        """Called before a single call. Writes the call's inputs."""

    def take(self, place: int, block: Block) -> None:
        """Called after a single call."""

    def write(self, place: int, slots: list[int]) -> None:
        """Called before a program's block. Writes the block's inputs."""

    def wait(self, place: int, slots: list[int]) -> float:
        """Called after a program's block. Returns the milliseconds until the block's results arrive."""

    def end(self, last: Round) -> None:
        """Called after the last round."""


def time_alone(program: Timed, budget_s: float) -> tuple[Measurement, bool]:
    """Time one program by itself, on the inputs in its slots, for about `budget_s` seconds.

    Returns the measurement, and whether enough rounds count.
    """
    calls = program.calls_for(program.warm_up())
    deadline = time.monotonic() + budget_s
    while len(program.block_ms) < MIN_ROUNDS or (
        time.monotonic() < deadline and len(program.block_ms) < 2 * MIN_ROUNDS
    ):
        program.run_block(list(range(calls)))
    program.child.resume()
    window = Window(program, {"": program}, calls)
    return window.measurement(program, by_wall=False), window.measurable()


def time_together(
    candidate: Timed,
    references: Mapping[str, Timed],
    budget_s: float,
    chance: random.Random,
    contents: Contents,
) -> tuple[Measurement, dict[str, Measurement], tuple[str, ...]]:
    """Time all programs in rounds until the intervals are narrow or `budget_s` seconds have passed.

    If the time runs out during a round, this round is finished. While fewer than `MIN_ROUNDS` rounds
    count, timing continues until at least 3 * `budget_s` seconds have passed and `MIN_ROUNDS_WHEN_SLOW`
    rounds are done.

    Returns the candidate's measurement, the references' measurements by name, and warnings. Raises
    whatever `contents` raises. The candidate is left stopped. `docs/measuring.md` describes the
    method.
    """
    window = _window(candidate, references, contents)
    try:
        everyone = [candidate, *references.values()]
        contents.end(_rounds(everyone, window, budget_s, chance, contents))
    finally:  # the references serve the next candidate
        for reference in references.values():
            reference.child.resume()
    return window.verdict()


def _rounds(
    everyone: Sequence[Timed],
    window: Window,
    budget_s: float,
    chance: random.Random,
    contents: Contents,
) -> Round:
    """Run rounds until there are enough. Returns the last round."""
    last: Round | None = None
    dense = _dense_calls(everyone[1])
    begin = time.monotonic()
    for count in range(1, OVERTIME_FACTOR * MAX_ROUNDS + 1):
        for calls in dense:
            contents.turn(last)
            last = _dense_round(everyone[0], everyone[1], calls, chance, contents)
        contents.turn(last)
        last = _round(everyone, window.calls, chance, contents)
        over = (time.monotonic() - begin) / budget_s
        counted = len(window.counted())
        if counted >= MIN_ROUNDS and (over > 1 or counted == MAX_ROUNDS or window.narrow()):
            break
        if count >= MIN_ROUNDS_WHEN_SLOW and over > OVERTIME_FACTOR:
            break
    assert last is not None
    return last


def _round(
    everyone: Sequence[Timed], calls: int, chance: random.Random, contents: Contents
) -> Round:
    """One block of each program, in random order."""
    slots = chance.sample(range(everyone[0].slots), calls)
    blocks: dict[int, Block] = {}
    for place in chance.sample(range(len(everyone)), len(everyone)):
        program = everyone[place]
        if calls > 1 and place < 2:  # only the candidate and the first reference are compared
            contents.take(place, program.single_call(partial(contents.write_alone, place)))
        contents.write(place, slots)
        blocks[place] = program.run_block(slots)
        program.outside_ms[-1] += contents.wait(place, slots)
    return [blocks[place] for place in sorted(blocks)]


def _dense_calls(reference: Timed) -> list[int]:
    """The number of calls in each dense block of a round. Depends only on the reference."""
    calls = reference.calls_for(reference.call_ms)
    return sorted({1, calls}) if calls > 1 or reference.call_ms < HIDEABLE_MS else []


def _dense_round(
    candidate: Timed, reference: Timed, calls: int, chance: random.Random, contents: Contents
) -> Round:
    """Run a dense block of the candidate, one of the reference, and an empty one of the reference."""
    everyone = (candidate, reference)
    slots = chance.sample(range(candidate.slots), calls)
    blocks: dict[int, Block] = {}
    for place in chance.sample(range(2), 2):
        wait = partial(contents.wait, place, slots)
        contents.write(place, slots)
        blocks[place] = everyone[place].dense(slots, wait)
    reference.dense(slots, partial(contents.wait, 1, slots), empty=True)
    return [blocks[0], blocks[1]]


def _window(candidate: Timed, references: Mapping[str, Timed], contents: Contents) -> Window:
    """Warm up all programs and choose one number of calls per block for all of them.

    Afterwards all programs are stopped.
    """
    contents.turn(None)
    for place, program in enumerate((candidate, *references.values())):
        contents.write(place, list(range(program.slots)))
    estimates = [candidate.warm_up()]
    candidate.child.pause()
    estimates += [reference.warm_up() for reference in references.values()]
    calls = candidate.calls_for(sum(estimates) / len(estimates))
    for reference in references.values():
        reference.child.pause()
    return Window(candidate, references, calls)
