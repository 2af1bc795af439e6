"""Programs timed together in one window, and the checks on clocks that a candidate could bend.

Every call of a timed block has inputs of its own, which are written while the candidate stands still, as it does whenever
it is not itself timed. What it does beside its calls counts: on a CPU the untimed call that precedes a block, as far as it is not
explained by that call, whose result must be right; on a GPU what the judge waits for results. On a CPU they are read out of the
memory of the process that stands still.

On a CPU the judge's wall clock is the clock. On a GPU each call is timed by device events in the running process, which
hostile code could forge; the judge's own wall clock around each block bounds them. What precedes each call there takes a
while, in which work could be hidden from both; so before each round come dense blocks, without that, which have the judge's
clock alone. Some calls are asked for by themselves as well, on inputs that come when the one before has ended: who does a
block's calls together is slower there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from stark.core.measurement import Measurement
from stark.evaluator.judge.timing.program import Block, Timed
from stark.evaluator.judge.timing.window import FEWEST_ROUNDS, FEWEST_ROUNDS_WHEN_SLOW, Window

MOST_ROUNDS = 100
SPIN_S = 0.002
"""OpenMP threads of the process that ran last spin this long before they sleep, on cores the next one needs."""

ALONE = 8
"""About how many calls of a round are asked for one by one on a CPU, of programs so quick that this takes less than their block."""

HIDEABLE_MS = 2.0
"""A call that takes longer gains little by what could be hidden in that."""

PATIENCE = 3
"""How many times the rounds and the seconds are granted where rounds do not count."""


Round = Sequence[Block]
"""The blocks of all programs, the candidate's first."""


class Contents(Protocol):
    """What the programs are timed on. Programs go by their place: 0 is the candidate, then come the references."""

    def turn(self, last: Round | None) -> None:
        """Called before every round: may look at the last round's results; chooses the next inputs."""

    def write_alone(self, place: int, number: int) -> None:
        """Called before each of a program's calls that are asked for one by one, and the untimed one before them: write its inputs."""

    def take(self, place: int, block: Block) -> None:
        """Called after the last of them, and after the untimed call before a block with its block: results are where the program says."""

    def write(self, place: int, slots: list[int]) -> None:
        """Called before a program's block: write its inputs, and on a CPU those of the untimed call."""

    def wait(self, place: int, slots: list[int]) -> float:
        """Called after a program's block: the milliseconds until its results had reached the judge's memory."""

    def end(self, last: Round) -> None:
        """Called after the last round."""


def time_alone(program: Timed, budget_s: float) -> tuple[Measurement, bool]:
    """The latency of one program by itself, on whatever its slots hold, and whether enough rounds count."""
    calls = program.calls_for(program.warm_up())
    asking_ms = program.asking_ms(calls) if program.device_kind == "cpu" else 0.0
    deadline = time.monotonic() + budget_s
    while len(program.block_ms) < FEWEST_ROUNDS or (
        time.monotonic() < deadline and len(program.block_ms) < 2 * FEWEST_ROUNDS
    ):
        program.awake(list(range(calls)))
    program.child.resume()
    window = Window(program, {"": program}, calls, asking_ms)
    return window.measurement(program, by_wall=False), window.measurable()


def time_together(
    candidate: Timed,
    references: Mapping[str, Timed],
    budget_s: float,
    chance: random.Random,
    contents: Contents,
) -> tuple[Measurement, dict[str, Measurement], tuple[str, ...]]:
    """Time all in one window, in rounds of random order, until the intervals are narrow or the time is up.

    Returns the candidate's measurement, the references' by name, and warnings. Raises whatever
    `contents` raises. The candidate is left standing still.
    """
    window = _window(candidate, references, contents)
    try:
        everyone = [candidate, *references.values()]
        contents.end(_rounds(everyone, window, budget_s, chance, contents))
    finally:  # they serve the next candidate
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
    """Sample until there is enough; returns the last round."""
    last: Round | None = None
    dense = _dense_calls(everyone[1])
    begin = time.monotonic()
    for count in range(1, PATIENCE * MOST_ROUNDS + 1):
        for calls in dense:
            contents.turn(last)
            last = _dense_round(everyone[0], everyone[1], calls, chance, contents)
        contents.turn(last)
        last = _round(everyone, window.calls, chance, contents)
        over = (time.monotonic() - begin) / budget_s
        counted = len(window.counted())
        if counted >= FEWEST_ROUNDS and (over > 1 or counted == MOST_ROUNDS or window.narrow()):
            break
        if count >= FEWEST_ROUNDS_WHEN_SLOW and over > PATIENCE:
            break
    assert last is not None
    return last


def _round(
    everyone: Sequence[Timed], calls: int, chance: random.Random, contents: Contents
) -> Round:
    """One sample of each, in random order."""
    slots = chance.sample(range(everyone[0].places), calls)
    one_by_one = _one_by_one(everyone[1], calls, chance)
    blocks: dict[int, Block] = {}
    for place in chance.sample(range(len(everyone)), len(everyone)):
        program = everyone[place]
        if program.device_kind == "cpu":
            time.sleep(SPIN_S)
            if one_by_one:
                contents.take(
                    place, program.alone(one_by_one, partial(contents.write_alone, place))
                )
        elif one_by_one and place < 2:  # a candidate is held against the first reference
            write = partial(contents.write_alone, place, 0)
            contents.take(place, program.alone_on_device(write))
        contents.write(place, slots)
        blocks[place], warm = program.awake(slots)
        if warm is not None:
            contents.take(place, warm)
        program.beside_ms[-1] += contents.wait(place, slots)
    return [blocks[place] for place in sorted(blocks)]


def _dense_calls(reference: Timed) -> list[int]:
    """How many calls dense blocks have, none where there are no such blocks. The candidate has no say in this."""
    if reference.device_kind == "cpu":
        return []
    calls = reference.calls_for(reference.call_ms)
    return sorted({1, calls}) if calls > 1 or reference.call_ms < HIDEABLE_MS else []


def _dense_round(
    candidate: Timed, reference: Timed, calls: int, chance: random.Random, contents: Contents
) -> Round:
    """One dense block of each, in random order, and one of the reference's without the calls."""
    everyone = (candidate, reference)
    slots = chance.sample(range(candidate.places), calls)
    blocks: dict[int, Block] = {}
    for place in chance.sample(range(2), 2):
        wait = partial(contents.wait, place, slots)
        contents.write(place, slots)
        blocks[place] = everyone[place].dense(slots, wait)
    reference.dense(slots, partial(contents.wait, 1, slots), empty=True)
    return [blocks[0], blocks[1]]


def _one_by_one(reference: Timed, calls: int, chance: random.Random) -> int:
    """How many calls are asked for by themselves in a round whose blocks have so many."""
    if reference.device_kind == "cuda":
        return 1 if calls > 1 else 0
    # As many that nobody knows which is the last, whose results are looked at.
    return 0 if calls == 1 else chance.randint(1, 2 * max(1, min(ALONE, calls // 6)) - 1)


def _window(candidate: Timed, references: Mapping[str, Timed], contents: Contents) -> Window:
    """Warm everyone up and choose a block: the same calls for all, so that all see the same inputs.

    From then on everyone stands still.
    """
    contents.turn(None)
    for place, program in enumerate((candidate, *references.values())):
        contents.write(place, list(range(program.places)))
    estimates = [candidate.warm_up()]
    candidate.child.pause()
    estimates += [reference.warm_up() for reference in references.values()]
    calls = candidate.calls_for(sum(estimates) / len(estimates))
    first = next(iter(references.values()))
    asking_ms = first.asking_ms(calls) if first.device_kind == "cpu" else 0.0
    for reference in references.values():
        reference.child.pause()
    return Window(candidate, references, calls, asking_ms)
