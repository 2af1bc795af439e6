"""The differences between two strategies on the same problems, with intervals from a paired bootstrap.

Problems differ far more from each other than strategies do, so strategies are compared problem by problem.
The bootstrap resamples problems, each with all its seeds, since the runs of one problem are not independent.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, quantiles

from stark.benches.metrics import FAILED, best_within
from stark.benches.results import Result
from stark.core.base import Frozen

METRICS = ("success", "fast_1", "fast_2", "correct_share", "geomean", "equal_tokens")
RATIOS = ("geomean", "equal_tokens")
"""The metrics whose values are ratios of speedups instead of differences. `geomean`: of the best kernels over all runs.
`equal_tokens`: of the search's best speedups, where the run that spent more tokens is cut off at those of the other one."""

RESAMPLES = 2000

MIN_PROBLEMS = 6
"""The fewest problems for which an interval is given. With only five problems, all five favor the same strategy by
chance in over 5 % of cases."""


class Difference(Frozen):
    """One metric of `strategy` compared with the same metric of `other`, with a 95 % interval."""

    level: str
    """A KernelBench level, a folder of problems, or `all`."""

    strategy: str
    other: str
    problems: int
    """Number of problems that both strategies ran with at least one seed in common."""

    metric: str
    """One of `METRICS`."""

    value: float
    low: float | None
    high: float | None
    """The ends of the interval; both None with fewer than `MIN_PROBLEMS` problems."""

    @property
    def significant(self) -> bool:
        """Whether the interval excludes the value of no difference: 1 for ratios, 0 for the other metrics."""
        none = 1.0 if self.metric in RATIOS else 0.0
        return self.low is not None and self.high is not None and not self.low <= none <= self.high


def compare(
    level: str, strategy: str, results: Sequence[Result], other: str, others: Sequence[Result]
) -> list[Difference]:
    """The difference in each metric; empty if the strategies have no pair of problem and seed in common.

    Each metric is averaged over each problem's seeds, then over problems; ratios are averaged as logarithms. The
    interval comes from Efron's percentile bootstrap: problems are drawn with replacement, and the interval reaches
    from the 2.5th to the 97.5th percentile of the means over the drawn problems. All metrics use the same draws. A
    fixed seed makes the draws reproducible.
    """
    rows = [_means([_minus(a, b) for a, b in seeds]) for seeds in _paired(results, others)]
    if not rows:
        return []
    rng = random.Random(0)
    drawn = [_means(rng.choices(rows, k=len(rows))) for _ in range(RESAMPLES)]
    found = []
    for metric, value, means in zip(METRICS, _means(rows), zip(*drawn, strict=True), strict=True):
        finish = math.exp if metric in RATIOS else float
        low, *_, high = map(finish, quantiles(means, n=40, method="inclusive"))
        enough = len(rows) >= MIN_PROBLEMS
        found.append(
            Difference(
                level=level,
                strategy=strategy,
                other=other,
                problems=len(rows),
                metric=metric,
                value=finish(value),
                low=low if enough else None,
                high=high if enough else None,
            )
        )
    return found


def _values(result: Result) -> tuple[float, ...]:
    """One run's contribution to each of `METRICS` but the last, which depends on both runs."""
    speedup, attempts = result.speedup("eager"), result.outcome.made
    return (
        float(speedup is not None),
        float(speedup is not None and speedup > 1),
        float(speedup is not None and speedup > 2),
        fmean(attempt.works for attempt in attempts) if attempts else 0.0,
        math.log(FAILED if speedup is None else speedup),
    )


def _minus(a: Result, b: Result) -> tuple[float, ...]:
    tokens = min(sum(one.outcome.tokens.values()) for one in (a, b))
    equal_tokens = math.log(best_within(a, tokens) / best_within(b, tokens))
    own = (left - right for left, right in zip(_values(a), _values(b), strict=True))
    return *own, equal_tokens


def _means(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """The mean of each column."""
    return tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))


def _paired(
    results: Sequence[Result], others: Sequence[Result]
) -> Iterable[list[tuple[Result, Result]]]:
    """The pairs of runs with the same problem and seed, grouped by problem."""
    partners = {result.pair: result for result in others}
    problems: defaultdict[tuple[str, str], list[tuple[Result, Result]]] = defaultdict(list)
    for result in results:
        if partner := partners.get(result.pair):
            problems[result.problem].append((result, partner))
    return problems.values()
