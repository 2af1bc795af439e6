"""The differences between two strategies on the same problems, with intervals from a paired bootstrap.

Problems differ far more from each other than strategies do, so strategies are compared problem by problem.
The bootstrap resamples problems, each with all its seeds, since the runs of one problem are not independent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from statistics import fmean

from stark.benches.metrics import FAILED
from stark.benches.results import Result
from stark.core.base import Frozen

RESAMPLES = 2000
LEVEL = 0.95

MIN_PROBLEMS = 6
"""With fewer problems there is no interval: even five out of five in one direction occur by chance in over 5 % of
cases."""


class Difference(Frozen):
    """A metric of one strategy minus that of another, with a 95 % interval."""

    level: str
    strategy: str
    other: str
    problems: int
    """Number of problems on which both have runs of the same seeds."""

    metric: str
    """`success`, `fast_1`, `fast_2` and `correct_share` are differences; `geomean` (over all runs) is a ratio."""

    value: float
    low: float | None
    high: float | None
    """The interval; None with fewer than `MIN_PROBLEMS` problems."""

    @property
    def significant(self) -> bool:
        """Whether the interval excludes "no difference"."""
        none = 1.0 if self.metric == "geomean" else 0.0
        return self.low is not None and self.high is not None and not self.low <= none <= self.high


def compare(
    level: str, strategy: str, results: Sequence[Result], other: str, others: Sequence[Result]
) -> list[Difference]:
    """The differences in every metric; empty if the two share no problem and seed.

    Each metric is averaged over each problem's seeds, then over problems; `geomean` averages logarithms. The
    interval is Efron's percentile bootstrap: from the 2.5th to the 97.5th percentile of that mean over problems
    drawn with replacement. All metrics use the same draws, and a fixed seed makes them reproducible.
    """
    pairs = _paired(results, others)
    if not pairs:
        return []
    differences = [
        [fmean(column) for column in zip(*(_minus(a, b) for a, b in seeds), strict=True)]
        for seeds in pairs
    ]
    columns = list(zip(*differences, strict=True))
    intervals = _intervals(columns)
    return [
        Difference(
            level=level,
            strategy=strategy,
            other=other,
            problems=len(pairs),
            metric=metric,
            value=finish(fmean(column)),
            low=None if interval is None else finish(interval[0]),
            high=None if interval is None else finish(interval[1]),
        )
        for (metric, finish), column, interval in zip(
            _FINISH.items(), columns, intervals, strict=True
        )
    ]


_FINISH = {
    "success": float,
    "fast_1": float,
    "fast_2": float,
    "correct_share": float,
    "geomean": math.exp,
}
"""Each metric, and the function that turns a mean difference of `_values` into the reported value."""


def _values(result: Result) -> tuple[float, ...]:
    """One run's contribution to each metric, in the order of `_FINISH`."""
    speedup, attempts = result.speedup("eager"), result.outcome.attempts
    return (
        float(speedup is not None),
        float(speedup is not None and speedup > 1),
        float(speedup is not None and speedup > 2),
        fmean(attempt.works for attempt in attempts) if attempts else 0.0,
        math.log(FAILED if speedup is None else speedup),
    )


def _minus(a: Result, b: Result) -> tuple[float, ...]:
    return tuple(left - right for left, right in zip(_values(a), _values(b), strict=True))


def _paired(
    results: Sequence[Result], others: Sequence[Result]
) -> list[list[tuple[Result, Result]]]:
    """The runs of the same problem and seed, by problem."""
    partners = {(r.cell.level, r.cell.problem, r.cell.seed): r for r in others}
    problems: dict[tuple[str, str], list[tuple[Result, Result]]] = {}
    for result in results:
        cell = result.cell
        partner = partners.get((cell.level, cell.problem, cell.seed))
        if partner is not None:
            problems.setdefault((cell.level, cell.problem), []).append((result, partner))
    return list(problems.values())


def _intervals(columns: Sequence[Sequence[float]]) -> list[tuple[float, float] | None]:
    """The interval of each column's mean, over rows drawn with replacement; None with too few rows."""
    count = len(columns[0])
    found: list[tuple[float, float] | None] = []
    if count < MIN_PROBLEMS:
        return [None] * len(columns)
    for column in columns:
        means = [sum(drawn(column)) / count for drawn in _draws(count)]
        found.append((_percentile(means, (1 - LEVEL) / 2), _percentile(means, (1 + LEVEL) / 2)))
    return found


@lru_cache(maxsize=8)
def _draws(count: int) -> list[Callable[[Sequence[float]], tuple[float, ...]]]:
    """For each resample, a function that picks its rows from a column of `count` values."""
    rng = random.Random(0)
    return [itemgetter(*rng.choices(range(count), k=count)) for _ in range(RESAMPLES)]


def _percentile(values: Sequence[float], share: float) -> float:
    """The percentile by linear interpolation."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
