"""Runs many simulations and summarizes them: means, paired intervals and regrets."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from lab.contestants import CONTESTANTS, PAPER
from lab.landscapes import world_of
from lab.runs import play

EARLY = 10
"""The number of attempts after which the early gain is taken."""

_CHUNK = 25
"""Seeds per task. A task runs in one process and draws a world's places once for all policies."""


@dataclass(frozen=True)
class Contest:
    """What is compared, and under which conditions."""

    landscapes: tuple[str, ...]
    policies: tuple[str, ...]
    """Always includes the paper's."""
    seeds: int
    attempts: int
    parallel: int
    first_seed: int = 0
    """Policies are tuned and compared on different seeds."""


@dataclass(frozen=True)
class Row:
    """The result of one policy on one landscape, over all seeds. Gains are natural logarithms."""

    landscape: str
    policy: str
    gain: float
    early_gain: float
    versus_paper: float
    """Mean difference in gain to the paper's policy on the same worlds."""
    margin: float
    """Half-width of that difference's 95 % interval."""
    early_versus_paper: float
    correct: float
    """Share of runs with a correct attempt."""
    attempts_to_most: float
    ceiling: float
    """Mean gain at the roofline."""


class Extreme(NamedTuple):
    """A policy's worst landscape."""

    gain: float
    landscape: str


@dataclass(frozen=True)
class Overall:
    """One policy over all landscapes with equal weights. All differences are in gain."""

    policy: str
    versus_paper: float
    margin: float
    worst: Extreme
    """Where it does worst compared with the paper's policy."""
    early_versus_paper: float
    early_worst: Extreme
    regret: Extreme
    """Where it is farthest behind the best policy, and how far (0 or less)."""


_Task = tuple[Contest, str, range]
_Seed = dict[str, tuple[float, float, bool, int, float]]
"""By policy: the gain, the early gain, whether an attempt was correct, `attempts_to_most`, the ceiling."""


def compete(contest: Contest, processes: int = 2) -> list[Row]:
    """The rows of every landscape and policy, in order; reproducible."""
    end = contest.first_seed + contest.seeds
    tasks = [
        (contest, name, range(first, min(first + _CHUNK, end)))
        for name in contest.landscapes
        for first in range(contest.first_seed, end, _CHUNK)
    ]
    rows: dict[str, list[_Seed]] = {name: [] for name in contest.landscapes}
    for task, seeds in zip(tasks, _mapped(tasks, processes), strict=True):
        rows[task[1]].extend(seeds)
    return [row for name in contest.landscapes for row in _rows(contest, name, rows[name])]


def overall(rows: Sequence[Row]) -> list[Overall]:
    """Every policy over all landscapes, best first."""
    best: dict[str, float] = {}
    by_policy: dict[str, list[Row]] = {}
    for row in rows:
        best[row.landscape] = max(row.gain, best.get(row.landscape, -math.inf))
        by_policy.setdefault(row.policy, []).append(row)
    found = [
        Overall(
            policy=policy,
            versus_paper=fmean(row.versus_paper for row in own),
            margin=math.sqrt(sum(row.margin**2 for row in own)) / len(own),
            worst=min(Extreme(row.versus_paper, row.landscape) for row in own),
            early_versus_paper=fmean(row.early_versus_paper for row in own),
            early_worst=min(Extreme(row.early_versus_paper, row.landscape) for row in own),
            regret=min(Extreme(row.gain - best[row.landscape], row.landscape) for row in own),
        )
        for policy, own in by_policy.items()
    ]
    return sorted(found, key=lambda one: -one.versus_paper)


def _mapped(tasks: Sequence[_Task], processes: int) -> Iterator[list[_Seed]]:
    if processes == 1:
        yield from map(_played, tasks)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_played, tasks)


def _played(task: _Task) -> list[_Seed]:
    contest, name, seeds = task
    played = []
    for seed in seeds:
        world = world_of(name, seed)
        outcome: _Seed = {}
        for policy in contest.policies:
            run = play(world, CONTESTANTS[policy](), contest.attempts, contest.parallel, seed)
            outcome[policy] = (
                run.gains[-1],
                run.gains[min(EARLY, contest.attempts) - 1],
                run.first_correct is not None,
                run.attempts_to_most,
                world.ceiling,
            )
        played.append(outcome)
    return played


def _rows(contest: Contest, landscape: str, seeds: Sequence[_Seed]) -> Iterator[Row]:
    for policy in contest.policies:
        gains, early, correct, attempts, ceilings = zip(
            *(seed[policy] for seed in seeds), strict=True
        )
        differences = [seed[policy][0] - seed[PAPER][0] for seed in seeds]
        yield Row(
            landscape=landscape,
            policy=policy,
            gain=fmean(gains),
            early_gain=fmean(early),
            early_versus_paper=fmean(seed[policy][1] - seed[PAPER][1] for seed in seeds),
            versus_paper=fmean(differences),
            margin=_margin(differences),
            correct=fmean(correct),
            attempts_to_most=fmean(attempts),
            ceiling=fmean(ceilings),
        )


def _margin(values: Sequence[float]) -> float:
    """Half-width of the mean's 95 % interval, by the normal approximation."""
    if len(values) < 2:
        return math.inf
    return 1.96 * stdev(values) / math.sqrt(len(values))
