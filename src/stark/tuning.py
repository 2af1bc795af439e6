"""Tries other values of a candidate's declared constants, which costs time of the device and no tokens.

All variants are raced: each is verified on the problem's own inputs and timed in a short window against eager mode, so
slow drift of the machine cancels. The race is successive halving (Jamieson and Talwalkar, AISTATS 2016): every variant
once, the fastest quarter again, the fastest against the candidate itself in pairs. Only the last heat decides, on
timings that chose nothing, each in a new process; a winner is faster in every pair.

The variants come in the order of a local search: those that differ from the fastest so far in one constant, then random
ones. With enough seconds that is every variant; with fewer, those near what the writer chose. `docs/notes/tuning.md`
compares this with other samplers.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Mapping
from statistics import fmean, median

from stark.agents.team import Draft
from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.core.evaluation import Evaluation
from stark.core.measurement import Speedup, speedup_of
from stark.core.node import TUNER, Node, Selection
from stark.core.problem import Problem
from stark.core.standing import is_noisy, vs_eager
from stark.core.tunable import Tunables, Variant, tunables, with_changes
from stark.core.tuning import Tuning
from stark.evaluator.executors import Executor
from stark.search.tree import Tree

NEAR_LEADER = 0.9
"""Attempts are tuned whose speedup is at least this share of the leader's."""

IN_FLIGHT = 4
"""Variants asked for at once: builds for a GPU need no device and run side by side."""

FINALISTS, MORE = 4, 2
"""The most variants that are timed again, and how often. A quarter of those raced are."""

PAIRS = 6
"""Timings of the winner and of the candidate itself in the last heat. If they are equally fast, the winner is the faster
one in all six pairs once in 64 races. The range of six ratios holds their median with a probability of 97 %."""


def is_due(node: Node, tree: Tree) -> bool:
    """Whether a new attempt is fast enough to be tuned: it leads, or is close to the leader."""
    found, best = vs_eager(node.evaluation), tree.best
    if not node.counts or node.duplicate_of is not None or found is None or found.too_noisy:
        return False
    if best is None or is_noisy(best.evaluation):
        return True
    return found.ratio >= NEAR_LEADER * (best.speedup_vs_eager or 0.0)


def next_tuned(tree: Tree) -> Selection | None:
    """The first attempt whose race has a winner that no attempt has yet; None if there is none."""
    made = {node.parent for node in tree.nodes if not node.counts}
    made |= {selection.parent for selection in tree.pending.values() if not selection.counts}
    found = (node.id for node in tree.nodes if node.tuning is not None and node.tuning.changes)
    return next((Selection(parent=id, action=TUNER) for id in found if id not in made), None)


def tuned(node: Node) -> Draft:
    """The variant that won the race of an attempt."""
    assert node.candidate is not None and node.tuning is not None
    changes = node.tuning.changes
    source = with_changes(node.candidate.source, changes)
    language = node.candidate.language
    return Draft(role=TUNER, source=source, plan=node.plan, language=language, changes=changes)


async def race(
    problem: Problem,
    candidate: Candidate,
    executor: Executor,
    device: Device,
    seconds: float,
    chance: random.Random,
) -> Tuning | None:
    """Race the variants of a correct candidate; None if it declares none. `seconds` are those of the device.

    The limit may be exceeded by the variants in flight. Raises what the executor raises.
    """
    space = tunables(candidate.source)
    if space.size < 2:
        return None
    return await _Race(problem, candidate, space, executor, device, seconds, chance).result()


def proposals(
    space: Tunables, scores: Mapping[Variant, float], chance: random.Random, count: int
) -> list[Variant]:
    """Up to `count` variants without a score: neighbours of the best one, in random order, then random ones."""
    best = max(scores, key=lambda variant: scores[variant])
    near = [
        (*best[:place], value, *best[place + 1 :])
        for place, constant in enumerate(space.constants)
        for value in constant.values
    ]
    chance.shuffle(near)
    numbers = range(min(space.size, sys.maxsize))  # no range may be longer
    drawn = chance.sample(numbers, min(len(numbers), len(scores) + count))
    found = dict.fromkeys((*near, *(_variant(space, number) for number in drawn)))
    return [variant for variant in found if variant not in scores][:count]


def _variant(space: Tunables, number: int) -> Variant:
    """The variant with this number, which counts through all values of all constants."""
    values = []
    for constant in space.constants:
        number, place = divmod(number, len(constant.values))
        values.append(constant.values[place])
    return tuple(values)


class _Race:
    """One race. Scores are logarithms of speedups over eager mode; a variant that fails has -inf."""

    def __init__(
        self,
        problem: Problem,
        candidate: Candidate,
        space: Tunables,
        executor: Executor,
        device: Device,
        seconds: float,
        chance: random.Random,
    ) -> None:
        self._problem, self._candidate, self._space = problem, candidate, space
        self._executor, self._device = executor, device
        self._seconds, self._chance = seconds, chance
        self._spent_s = 0.0
        self._scores: dict[Variant, list[float]] = {}
        self._first_s: list[float] = []
        """What each variant took when it was built and timed for the first time, in seconds of the device."""

        self._again_s: list[float] = []
        """What the other timings took."""

    async def result(self) -> Tuning:
        """Race all variants that the seconds allow."""
        own = self._space.own
        if math.isfinite(await self._time(own)):  # it is built already
            await self._all()
        best = max(await self._finalists(), key=self._score)
        gain = None if best == own else await self._last_heat(best)
        won = gain is not None and gain.low > 1
        return Tuning(
            variants=self._space.size - 1,
            raced=len(self._scores) - 1,
            seconds=round(self._spent_s, 3),
            changes=self._space.changes(best) if won else (),
            gain=gain,
        )

    async def _all(self) -> None:
        """Time every variant once, as far as the seconds allow: the last heat needs some of them, too."""
        while True:
            scores = {variant: self._score(variant) for variant in self._scores}
            batch = proposals(self._space, scores, self._chance, IN_FLIGHT)
            while batch and not self._affords(len(batch), 2 * PAIRS):
                batch.pop()
            if not batch:
                return
            await asyncio.gather(*map(self._time, batch))

    async def _finalists(self) -> list[Variant]:
        """The candidate itself and the fastest variants. Several are timed again, in turns: others are out of the race."""
        own = self._space.own
        faster = [each for each in self._scores if self._score(each) > self._score(own)]
        count = min(FINALISTS, math.ceil(len(self._scores) / 4))
        finalists = [own, *sorted(faster, key=self._score, reverse=True)[:count]]
        for variant in finalists * MORE if len(finalists) > 2 else []:
            if self._affords(0, 2 * PAIRS):
                await self._time(variant)
        return finalists

    async def _last_heat(self, best: Variant) -> Speedup | None:
        """Time the best variant and the candidate itself in pairs; None if one fails or the variant loses a pair."""
        ratios: list[float] = []
        pair = [best, self._space.own]
        for _ in range(PAIRS):
            pair.reverse()
            score = {variant: await self._time(variant) for variant in pair}
            ratios.append(score[best] - score[self._space.own])
            if not 0 < ratios[-1] < math.inf:
                return None
        return speedup_of("untuned", ratios)

    async def _time(self, variant: Variant) -> float:
        """Time a variant once. Returns its score."""
        source = self._space.written(variant)
        asked = self._candidate.model_copy(update={"source": source})
        evaluation = await self._executor.evaluate(self._problem, asked, "race")
        found, taken_s = vs_eager(evaluation), device_seconds(evaluation, self._device)
        built = variant != self._space.own and variant not in self._scores
        (self._first_s if built else self._again_s).append(taken_s)
        self._spent_s += taken_s
        score = -math.inf if found is None else math.log(found.ratio)
        self._scores.setdefault(variant, []).append(score)
        return score

    def _score(self, variant: Variant) -> float:
        return median(self._scores[variant])

    def _affords(self, variants: int, timings: int) -> bool:
        """Whether the seconds are enough for new variants and then for timings of old ones."""
        first_s = fmean(self._first_s or self._again_s)
        needed_s = variants * first_s + timings * fmean(self._again_s)
        return self._spent_s + needed_s <= self._seconds


def device_seconds(evaluation: Evaluation, device: Device) -> float:
    """For how long an evaluation held the device. Builds hold a CPU too, since timing needs all of its cores."""
    off = ("static", "build") if device.kind == "cuda" else ("static",)
    return sum(taken for phase, taken in evaluation.seconds.items() if phase not in off)
