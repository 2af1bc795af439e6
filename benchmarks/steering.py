"""Simulates how often judges prepare a problem, and how much two judge together, by the rule that steers requests.

    python benchmarks/steering.py [--candidates 96] [--runs 5]

Simulated judges sleep instead of computing: 0.8 to 1.3 units for a candidate, by its problem and by chance, and 2.5
units to prepare a problem, as measured on an H200. Problems take turns in a judge. `slots` keeps as many requests open as given; the first 40 are
not counted. `searches` asks for one candidate of each problem at a time, with a pause.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable

from stark.core.problem import Problem
from stark.evaluator.executors import judges

UNIT_S, PREPARE, WARM, PROBLEMS = 1 / 50, 2.5, 40, 8

Load = Callable[[judges.Judge, str], tuple[float, int]]


def _least_busy(judge: judges.Judge, problem: str) -> tuple[float, int]:
    return len(judge.open), 0


def _two_requests(judge: judges.Judge, problem: str) -> tuple[float, int]:
    unprepared = {*judge.open, problem}.difference(judge.kept)
    return len(judge.open) + 2 * len(unprepared), len({*judge.open, *judge.kept})


RULES: dict[str, Load] = {
    "the least busy judge": _least_busy,
    "preparing counts as two requests": _two_requests,
    "today's": judges.Judge.load,
}


class Sleeping:
    """A judge that keeps this many problems, beside those that it is asked about, and sleeps."""

    others = 0

    def __init__(self, keeps: int, chance: random.Random) -> None:
        self.open: list[str] = []
        self.kept: dict[str, asyncio.Lock] = {}
        """A lock for each problem with a process: one of its requests waits for the device at a time."""

        self.prepared = 0
        self._keeps, self._chance = keeps, chance
        self._turn = asyncio.Lock()  # first come, first served
        self._ready: set[str] = set()

    async def ask(self, problem: Problem) -> None:
        """Judge a candidate."""
        digest = problem.digest
        self.open.append(digest)
        self.kept[digest] = self.kept.pop(digest, asyncio.Lock())
        async with self.kept[digest], self._turn:
            if digest not in self._ready:
                self._ready.add(digest)
                self.prepared += 1
                await asyncio.sleep(PREPARE * UNIT_S)
            units = 0.8 + 0.5 * int(problem.name) / PROBLEMS
            await asyncio.sleep(units * self._chance.uniform(0.9, 1.1) * UNIT_S)
        self.open.remove(digest)
        idle = [each for each in self.kept if each not in self.open]
        for each in idle[: max(0, len(self.kept) - self._keeps)]:
            del self.kept[each]
            self._ready.discard(each)


async def _simulated(
    rule: Load, count: int, keeps: int, slots: int, candidates: int, seed: int
) -> tuple[float, int]:
    """Counted candidates per unit, and all preparations. Without `slots`, by searches."""
    chance = random.Random(seed)
    every = [Sleeping(keeps, chance) for _ in range(count)]
    problems = [Problem(name=str(n), source=f"# {n}\n") for n in range(PROBLEMS)]
    free = asyncio.Semaphore(slots or PROBLEMS)
    answered: list[float] = []

    async def judged(problem: Problem) -> None:
        async with free:
            await min(every, key=lambda judge: rule(judge, problem.digest)).ask(problem)  # type: ignore[arg-type]
        answered.append(time.monotonic())

    async def search(problem: Problem, length: int) -> None:
        for _ in range(length):
            await asyncio.sleep(chance.uniform(0, 2) * UNIT_S)
            await judged(problem)

    total = WARM + candidates
    if slots:
        await asyncio.gather(*(judged(problems[n % PROBLEMS]) for n in range(total + slots)))
    else:
        await asyncio.gather(*(search(each, total // PROBLEMS) for each in problems))
    took_s = answered[total - 1] - answered[WARM - 1]
    return candidates * UNIT_S / took_s, sum(judge.prepared for judge in every)


def main() -> None:
    """Simulate all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=96)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print("| rule | requests | problems kept | preparations | two judges, times one |")
    print("|---|---|---|---|---|")
    for slots in (32, 0):
        for keeps in (8, 5):
            for name, rule in RULES.items():
                found = [
                    [
                        asyncio.run(_simulated(rule, n, k, slots, options.candidates, seed))
                        for n, k in ((1, PROBLEMS), (2, keeps))
                    ]
                    for seed in range(options.runs)
                ]
                ratios = [two[0] / one[0] for one, two in found]
                prepared = statistics.median(two[1] for _, two in found)
                asked = f"{slots} slots" if slots else "searches"
                shown = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                print(f"| {name} | {asked} | {keeps} | {prepared:g} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
