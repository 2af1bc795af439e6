"""Compares ways to choose variants of a large space: random ones, `stark.tuning.proposals`, and optuna's.

    python benchmarks/samplers.py                    # its rows need `pip install optuna`
    python benchmarks/samplers.py --seeds 200 --budgets 20 40 80

The spaces are invented: each constant has a best value from which the time grows to both sides, pairs of constants
interact, large products of values do not run (as with shared memory), and the writer's own choice is one or two steps off.
A measurement is off by 2 %. Each row: by how much the best variant found is slower than the best there is, on average.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from stark.core.tunable import Tunables, Variant, tunables
from stark.tuning import proposals

NOISE = 0.02
BATCH = 4

Sampler = Callable[["World", int, random.Random], Mapping[Variant, float]]
"""Measures so many variants of a world; returns the scores."""


@dataclass(frozen=True)
class World:
    """One invented space."""

    space: Tunables
    best: tuple[int, ...]
    slopes: tuple[float, ...]
    between: dict[tuple[int, int], float]
    limit: int

    def places(self, variant: Variant) -> list[int]:
        """The place of each value among those of its constant."""
        pairs = zip(self.space.constants, variant, strict=True)
        return [constant.values.index(value) for constant, value in pairs]

    def gain(self, variant: Variant) -> float:
        """The logarithm of the speed, at most 0; -inf if it does not run."""
        places = self.places(variant)
        if sum(places) > self.limit:
            return -math.inf
        off = [place - best for place, best in zip(places, self.best, strict=True)]
        own = sum(
            slope * math.pow(abs(each), 1.5) for slope, each in zip(self.slopes, off, strict=True)
        )
        shared = sum(much * abs(off[a] + off[b]) for (a, b), much in self.between.items())
        return -own - shared

    def measured(self, variant: Variant, chance: random.Random) -> float:
        """A score with noise."""
        return self.gain(variant) + chance.gauss(0, NOISE)


def world(constants: int, values: int, chance: random.Random) -> World:
    """An invented space with so many constants of so many values."""
    best = tuple(chance.randrange(values) for _ in range(constants))
    own = [min(values - 1, max(0, place + chance.choice([-2, -1, 0, 1, 2]))) for place in best]
    lines = [
        f"C{at} = {place}  # tune: {', '.join(map(str, range(values)))}"
        for at, place in enumerate(own)
    ]
    pairs = [(a, b) for a in range(constants) for b in range(a)]
    return World(
        space=tunables("\n".join(lines) + "\n"),
        best=best,
        slopes=tuple(chance.uniform(0.01, 0.2) for _ in best),
        between={pair: chance.uniform(0.0, 0.1) for pair in chance.sample(pairs, constants // 2)},
        limit=max(sum(best), sum(own), round(0.7 * constants * (values - 1))),
    )


def at_random(world: World, budget: int, chance: random.Random) -> Mapping[Variant, float]:
    """The writer's choice, then random ones."""
    scores = {world.space.own: world.measured(world.space.own, chance)}
    while len(scores) < min(budget, world.space.size):
        variant = tuple(chance.choice(constant.values) for constant in world.space.constants)
        if variant not in scores:
            scores[variant] = world.measured(variant, chance)
    return scores


def nearby(world: World, budget: int, chance: random.Random) -> Mapping[Variant, float]:
    """As in a race."""
    scores = {world.space.own: world.measured(world.space.own, chance)}
    while len(scores) < budget:
        batch = proposals(world.space, scores, chance, min(BATCH, budget - len(scores)))
        if not batch:
            break
        scores |= {variant: world.measured(variant, chance) for variant in batch}
    return scores


def by_optuna() -> Sampler:
    """Optuna's default sampler, TPE, which is told the writer's choice first. What does not run has a very bad score."""
    import optuna  # type: ignore[import-not-found, unused-ignore]

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def measure(world: World, budget: int, chance: random.Random) -> Mapping[Variant, float]:
        sampler = optuna.samplers.TPESampler(seed=chance.randrange(1 << 30))
        study = optuna.create_study(direction="maximize", sampler=sampler)
        constants = world.space.constants
        scores: dict[Variant, float] = {}
        study.enqueue_trial({each.name: each.value for each in constants})
        while len(scores) < min(budget, world.space.size) and len(study.trials) < 3 * budget:
            trial: Any = study.ask()
            variant = tuple(
                trial.suggest_int(each.name, 0, len(each.values) - 1) for each in constants
            )
            if variant not in scores:
                scores[variant] = world.measured(variant, chance)
            study.tell(trial, max(scores[variant], -10.0))
        return scores

    return measure


def main() -> int:
    """Print a row for each size of space and each sampler."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--budgets", type=int, nargs="+", default=[20, 40, 80])
    options = parser.parse_args()
    samplers: dict[str, Sampler] = {"random": at_random, "proposals": nearby}
    try:
        samplers["optuna"] = by_optuna()
    except ImportError:
        print("optuna is not installed; its rows are left out")
    print(
        "| space | sampler | "
        + " | ".join(f"{n} variants" for n in options.budgets)
        + " | ms each |"
    )
    for constants, values in ((3, 4), (4, 5), (6, 4), (8, 4)):
        for name, sampler in samplers.items():
            cells = []
            begin = time.monotonic()
            for budget in options.budgets:
                losses = [
                    _loss(constants, values, sampler, budget, seed) for seed in range(options.seeds)
                ]
                cells.append(f"{math.expm1(fmean(losses)):.1%}")
            taken_ms = (time.monotonic() - begin) * 1e3 / options.seeds / sum(options.budgets)
            print(
                f"| {values}^{constants} | {name} | {' | '.join(cells)} | {taken_ms:.2f} |",
                flush=True,
            )
    return 0


def _loss(constants: int, values: int, sampler: Sampler, budget: int, seed: int) -> float:
    """The logarithm of by how much the variant with the best score is slower than the best there is."""
    invented = world(constants, values, random.Random(seed))
    scores = sampler(invented, budget, random.Random(f"{seed} {budget}"))
    return -invented.gain(max(scores, key=lambda variant: scores[variant]))


if __name__ == "__main__":
    sys.exit(main())
