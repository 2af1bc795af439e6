"""The metrics of a bench's report: pure functions over results, each with its definition and source.

A run's speedup is the speedup of its best kernel (ranked by `core.standing`). It is the reference's time divided by the
kernel's: the median over pairs of samples taken next to each other (`Correct.speedup_vs`). A run without a correct
kernel has no speedup. In fast_p it counts as a failure for every p. In averages over all runs it counts as 1, since the
user keeps the reference.

With several seeds, each run counts once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean, median

from pydantic import Field, computed_field

from stark.benches.results import Result
from stark.core.base import Frozen
from stark.core.measurement import Speedup
from stark.core.standing import rank_key
from stark.core.usage import Spent, roles_together
from stark.explain.evaluation import precision_met
from stark.search.repairs import failures_repaired
from stark.store import Outcome
from stark.store.outcome import best_speedup

REFERENCES = ("eager", "compile", "max-autotune")

FAST_PS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""The values of p in the fast_p table: KernelBench's six values and three higher ones."""

FAILED = 1.0
"""What a run without a correct kernel counts as in averages over all runs."""


class Spread(Frozen):
    """A summary of several speedups."""

    geomean: float
    mean: float
    median: float
    worst: float


class Against(Frozen):
    """The best kernels against one reference.

    The metrics count runs whose best kernel was measured against this reference, and runs without a correct kernel.
    Runs whose best kernel was not measured against this reference are excluded.
    """

    measured: int
    """Number of best kernels that were measured against this reference."""

    kernels: int
    """Number of all best kernels, whether measured against this reference or not."""

    fast: dict[float, float]
    """fast_p, the share of runs with a speedup greater than p, by p."""

    clearly_faster: float
    """Share of runs whose whole 95 % interval lies above 1."""

    of_correct: Spread | None
    """Speedups of the runs whose best kernel was measured; None if there are no such runs."""

    of_all: Spread
    """Speedups of all counted runs, where a run without a correct kernel counts as 1."""


class Summary(Frozen):
    """The metrics of one strategy on one level."""

    level: str
    """A KernelBench level, a folder of problems, or `all`."""

    strategy: str
    problems: int
    runs: int
    success: float
    """Share of runs with at least one correct kernel (the paper's success rate)."""

    against: dict[str, Against]
    """By reference: eager, and every other reference that a kernel was measured against."""

    roofline: float | None
    """The roofline's time divided by the kernel's: median over the best kernels whose roofline is known."""

    meets: dict[str, int] = Field(default={})
    """How many of the best kernels have an error within each precision class, the strictest that it meets."""

    attempts: int
    correct_share: float | None
    """Share of finished attempts that are correct; None if none finished. An unusable reply counts as a failure."""

    failures_taken_up: int
    failures_repaired: int
    attempts_to_best: float | None
    """Number of attempts up to and including the best one, averaged over runs with a correct kernel; None without
    such runs."""

    tuned: int = 0
    """Number of runs in which tuning found a candidate."""

    tuning_gain: float | None = None
    """The speedup of these runs' best kernels divided by that of the best without tuning, as a geometric mean; None
    without such runs. It is contained in all other speedups."""

    roles: dict[str, Spent]
    """What the model calls cost, by role."""

    active_hours: float
    """Sum of the runs' active times, including waiting for models and judges."""

    @property
    def spent(self) -> Spent:
        """The cost of all roles together."""
        return sum(self.roles.values(), Spent())

    @computed_field  # type: ignore[prop-decorator]
    @property
    def repaired_share(self) -> float | None:
        """Share of the debugged failures that were repaired (the paper's share of resolved bugs)."""
        return self.failures_repaired / self.failures_taken_up if self.failures_taken_up else None


def summarize(level: str, strategy: str, results: Sequence[Result]) -> Summary:
    """The metrics of these results. There must be at least one result."""
    outcomes = [result.outcome for result in results]
    kernels = [outcome.best for outcome in outcomes if outcome.best is not None]
    measured = {"eager", *(name for kernel in kernels for name in kernel.references)}
    attempts = [attempt for outcome in outcomes for attempt in outcome.made]
    repairs = [failures_repaired(outcome.attempts) for outcome in outcomes]
    to_best = [
        sum(one.counts for one in outcome.attempts[: 1 + _place(outcome, outcome.best_attempt)])
        for outcome in outcomes
        if outcome.best_attempt is not None
    ]
    gains = [gain for outcome in outcomes if (gain := tuning_gain(outcome)) is not None]
    fractions = [kernel.roofline_fraction for kernel in kernels]
    shares = [fraction for fraction in fractions if fraction is not None]
    return Summary(
        level=level,
        strategy=strategy,
        problems=len({result.problem for result in results}),
        runs=len(results),
        success=len(kernels) / len(results),
        against={name: against(results, name) for name in REFERENCES if name in measured},
        roofline=median(shares) if shares else None,
        meets=dict(Counter(map(precision_met, kernels))),
        attempts=len(attempts),
        correct_share=fmean(attempt.works for attempt in attempts) if attempts else None,
        failures_taken_up=sum(taken for taken, _ in repairs),
        failures_repaired=sum(repaired for _, repaired in repairs),
        attempts_to_best=fmean(to_best) if to_best else None,
        tuned=len(gains),
        tuning_gain=geomean(gains) if gains else None,
        roles=roles_together(outcome.roles for outcome in outcomes),
        active_hours=sum(outcome.elapsed_s for outcome in outcomes) / 3600,
    )


def tuning_gain(outcome: Outcome) -> float | None:
    """The speedup of a run's best kernel divided by that of the best that is not tuned; None if tuning found nothing."""
    if len(outcome.made) == len(outcome.attempts):
        return None
    ids = {one.id for one in outcome.made}
    checks = {id: found for id, found in outcome.checks.items() if id in ids}
    after = best_speedup(outcome.attempts, outcome.checks)
    before = best_speedup(outcome.made, checks)
    return None if after is None or before is None else after.ratio / before.ratio


def _place(outcome: Outcome, attempt: int) -> int:
    return [one.id for one in outcome.attempts].index(attempt)


def against(results: Sequence[Result], reference: str) -> Against:
    """The comparison with eager, or with another reference that a kernel was measured against."""
    counted = [one for one in results if one.best is None or reference in one.best.references]
    measured = [one.best.speedup_vs(reference) for one in counted if one.best is not None]
    ratios = [speedup.ratio for speedup in measured]
    failed = len(counted) - len(measured)
    return Against(
        measured=len(measured),
        kernels=sum(result.best is not None for result in results),
        fast={p: fast_p([*ratios, *[None] * failed], p) for p in FAST_PS},
        clearly_faster=sum(speedup.low > 1 for speedup in measured) / len(counted),
        of_correct=spread(ratios) if ratios else None,
        of_all=spread([*ratios, *[FAILED] * failed]),
    )


def fast_p(speedups: Sequence[float | None], p: float) -> float:
    """Share of the given runs that have a correct kernel with a speedup greater than p; KernelBench's `fastp`.

    `None` is a run without a correct kernel. `against` excludes runs whose kernel was not measured.
    KernelBench (`score.py`) takes one sample per problem and divides by the number of all problems, failed
    ones included. Every speedup is greater than 0, so fast_0 is the share of runs with a correct kernel.
    KernelBench's speedup is a ratio of mean times; ours is the median of paired ratios.
    """
    return sum(value is not None and value > p for value in speedups) / len(speedups)


def spread(speedups: Sequence[float]) -> Spread:
    """Geometric mean, arithmetic mean, median and minimum.

    If all kernels are correct, the geometric mean is KernelBench's `geometric_mean_speed_ratio_correct_only`.
    """
    return Spread(
        geomean=geomean(speedups),
        mean=fmean(speedups),
        median=median(speedups),
        worst=min(speedups),
    )


def geomean(values: Sequence[float]) -> float:
    """The exponential of the mean logarithm."""
    return math.exp(fmean(math.log(value) for value in values))


def best_by_attempt(results: Sequence[Result], attempts: int) -> list[float]:
    """For k = 1 to `attempts`: the geometric mean of the runs' speedups against eager after k attempts.

    The speedups are those that the search measured. Attempts that failed the final check do not count. A run
    without a correct kernel after k attempts counts as 1. The last value differs from `of_all.geomean` only because the
    final check measures again.
    """
    courses = [_course(result.search_speedups, attempts) for result in results]
    return [geomean(values) for values in zip(*courses, strict=True)]


def best_within(result: Result, tokens: int) -> float:
    """The best speedup against eager after the attempts whose calls took at most `tokens` tokens together.

    As in `best_by_attempt`, measured by the search; 1 without a correct kernel. Attempts count in the order in which they
    finished, and the first one that exceeds the limit ends the run.
    """
    spent = accumulate(result.outcome.tokens.get(one.id, 0) for one in result.outcome.made)
    affordable = sum(total <= tokens for total in spent)
    return [FAILED, *_course(result.search_speedups, affordable)][-1]


def _course(speedups: Sequence[Speedup | None], length: int) -> list[float]:
    """One run's best speedup after each attempt; if the run ended early, the last value is repeated."""
    best: tuple[bool, float, int] | None = None
    course = []
    for position, speedup in enumerate(speedups[:length]):
        if speedup is not None:
            key = rank_key(speedup, position)
            best = key if best is None else min(best, key)
        course.append(FAILED if best is None else -best[1])
    return course + [course[-1] if course else FAILED] * (length - len(course))
