"""By how much two strategies differ on the same problems, with intervals from a paired bootstrap.

Problems differ far more from each other than strategies do. So the strategies are compared problem by
problem, and what is drawn again and again is the problems: each with all its seeds, since the runs of a
problem are not independent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from statistics import fmean

from stark.bench.metrics import FAILED
from stark.bench.results import Result
from stark.core.base import Frozen

RESAMPLES = 2000
LEVEL = 0.95

ENOUGH = 6
"""With fewer problems nothing is assured: that five all point one way is chance more often than once in twenty."""


class Difference(Frozen):
    """One number of a strategy less that of another, with a 95 % interval."""

    level: str
    strategy: str
    other: str
    problems: int
    """On which both have runs of the same seeds."""

    metric: str
    """`success`, `fast_1`, `fast_2`, `correct_share` as differences; `geomean` (failed as 1) as a ratio."""

    value: float
    low: float
    high: float

    @property
    def assured(self) -> bool:
        """Whether the interval leaves out no difference, on enough problems to believe it."""
        none = 1.0 if self.metric == "geomean" else 0.0
        return self.problems >= ENOUGH and not self.low <= none <= self.high


def compare(
    level: str, strategy: str, results: Sequence[Result], other: str, others: Sequence[Result]
) -> list[Difference]:
    """The differences in every metric; none where the two share no run of a problem and seed.

    Each metric is a mean over problems of a problem's mean over seeds, of the geometric mean the
    logarithm. Its interval is from the 2.5th to the 97.5th percentile of that mean over problems drawn
    with replacement (Efron's percentile bootstrap), the same draws for all metrics. The draws follow
    from a fixed seed, so the same results give the same intervals.
    """
    pairs = _paired(results, others)
    if not pairs:
        return []
    differences = [
        [fmean(column) for column in zip(*(_less(a, b) for a, b in seeds), strict=True)]
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
            low=finish(low),
            high=finish(high),
        )
        for (metric, finish), column, (low, high) in zip(
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
"""Each metric, and what makes a mean difference of `_values` into what is reported."""


def _values(result: Result) -> tuple[float, ...]:
    """One run's part in each metric."""
    speedup, attempts = result.speedup("eager"), result.outcome.attempts
    return (
        float(speedup is not None),
        float(speedup is not None and speedup > 1),
        float(speedup is not None and speedup > 2),
        fmean(attempt.works for attempt in attempts) if attempts else 0.0,
        math.log(FAILED if speedup is None else speedup),
    )


def _less(a: Result, b: Result) -> tuple[float, ...]:
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


def _intervals(columns: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """For each column the interval of its mean, over rows drawn with replacement."""
    count = len(columns[0])
    if count == 1:
        return [(column[0], column[0]) for column in columns]
    found = []
    for column in columns:
        means = [sum(drawn(column)) / count for drawn in _draws(count)]
        found.append((_percentile(means, (1 - LEVEL) / 2), _percentile(means, (1 + LEVEL) / 2)))
    return found


@lru_cache(maxsize=8)
def _draws(count: int) -> list[Callable[[Sequence[float]], tuple[float, ...]]]:
    """What takes each resample's rows from a column; the same for all columns of a length."""
    rng = random.Random(0)
    return [itemgetter(*rng.choices(range(count), k=count)) for _ in range(RESAMPLES)]


def _percentile(values: Sequence[float], share: float) -> float:
    """Linear between the neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
