"""From results to numbers: pure functions, each with its definition and where it comes from.

A speedup here is `Correct.speedup_vs`: the median over pairs of samples taken next to each other. Of
a run it is that of its best kernel, which is the one with the highest lower end of the interval
against eager, as in the tree. A run without a correct kernel has no speedup (None): it is not fast
at any p, and counts as 1 in the numbers labelled "failed as 1", since its user keeps the reference.
With several seeds every run counts by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from stark.bench.results import Result
from stark.core.base import Frozen
from stark.core.usage import RoleUsage, Usage, by_role
from stark.search.repairs import failures_repaired
from stark.store import Attempted, Outcome

REFERENCES = ("eager", "compile", "max-autotune")
"""Those that are always reported on, measured or not."""

FAST_PS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Where the curve of fast_p is tabulated: KernelBench's six values of p and a few higher ones."""

FAILED = 1.0
"""The speedup of a run without a correct kernel, where such runs count."""


class Spread(Frozen):
    """Some speedups in four numbers."""

    geomean: float
    mean: float
    median: float
    worst: float


class Against(Frozen):
    """The best kernels against one reference."""

    reference: str
    fast: dict[float, float]
    """fast_p by p."""

    assured_fast_1: float
    """As fast_1, with the lower end of the interval above 1 in place of the median."""

    of_correct: Spread | None
    """Over the runs with a correct kernel; None when there is none."""

    of_all: Spread
    """Over all runs, failed ones as 1."""


class Summary(Frozen):
    """All numbers of one strategy on one level."""

    level: str
    strategy: str
    problems: int
    runs: int
    success: float
    against: dict[str, Against | None]
    """By reference; None where not every kernel was measured against it."""

    roofline: float | None
    """Median share of the roofline's speed; None without a correct kernel."""

    attempts: int
    correct_share: float | None
    failures_taken_up: int
    failures_repaired: int
    attempts_to_best: float | None
    calls: int
    tokens: int | None
    """In all; None when some were not told. The same holds for dollars."""

    dollars: float | None
    roles: tuple[RoleUsage, ...]
    """The same by role, in which estimates stand in, marked, for tokens that were not told."""

    active_hours: float
    """The runs' active times added up, waiting for models and judges included."""

    @property
    def repaired_share(self) -> float | None:
        """Share of the failures taken up by debugging that it made work (the paper's share of resolved bugs)."""
        return self.failures_repaired / self.failures_taken_up if self.failures_taken_up else None


def summarize(level: str, strategy: str, results: Sequence[Result]) -> Summary:
    """The numbers of these results, of which there is at least one."""
    usage = sum((result.outcome.usage for result in results), Usage())
    repairs = [failures_repaired(result.outcome.attempts) for result in results]
    return Summary(
        level=level,
        strategy=strategy,
        problems=len({(result.cell.level, result.cell.problem) for result in results}),
        runs=len(results),
        success=success(results),
        against={name: against(results, name) for name in references(results)},
        roofline=roofline(results),
        attempts=sum(len(result.outcome.attempts) for result in results),
        correct_share=correct_share(results),
        failures_taken_up=sum(taken for taken, _ in repairs),
        failures_repaired=sum(mended for _, mended in repairs),
        attempts_to_best=attempts_to_best(results),
        calls=usage.calls,
        tokens=usage.tokens,
        dollars=usage.dollars,
        roles=by_role(role for result in results for role in result.outcome.roles),
        active_hours=sum(result.outcome.elapsed_s for result in results) / 3600,
    )


def success(results: Sequence[Result]) -> float:
    """Share of runs with at least one correct kernel (the paper's success rate)."""
    return sum(result.best is not None for result in results) / len(results)


def references(results: Sequence[Result]) -> list[str]:
    """The references to report on: the usual ones, then others that some kernel was measured against."""
    measured = {name for result in results if result.best for name in result.best.references}
    return [*REFERENCES, *sorted(measured - set(REFERENCES))]


def against(results: Sequence[Result], reference: str) -> Against | None:
    """All that is said of one reference; None unless every kernel was measured against it, and there is one.

    With a few missing, the numbers would be of other problems than those of the other references.
    """
    kernels = [result.best for result in results if result.best is not None]
    if any(reference not in kernel.references for kernel in kernels):
        return None
    if not kernels and reference != "eager":
        return None
    speedups = [result.speedup(reference) for result in results]
    assured = [
        kernel.speedup_vs(reference).low if kernel else None
        for kernel in (result.best for result in results)
    ]
    return Against(
        reference=reference,
        fast={p: fast_p(speedups, p) for p in FAST_PS},
        assured_fast_1=fast_p(assured, 1.0),
        of_correct=spread([value for value in speedups if value is not None]) if kernels else None,
        of_all=spread([FAILED if value is None else value for value in speedups]),
    )


def fast_p(speedups: Sequence[float | None], p: float) -> float:
    """Share of all runs that are correct with a speedup greater than p; KernelBench's `fastp`.

    KernelBench (`score.py`) takes one sample for each problem and divides by the number of all problems,
    failed ones included; the inequality is strict, so fast_0 is the share of correct ones. Its speedup is
    a ratio of mean times, where ours is a median of paired ratios.
    """
    return sum(value is not None and value > p for value in speedups) / len(speedups)


def fast_p_curve(speedups: Sequence[float | None]) -> list[tuple[float, float]]:
    """fast_p as a function of p: the points (p, share) at which it steps down, from p = 0 on."""
    values = sorted({value for value in speedups if value is not None})
    return [(p, fast_p(speedups, p)) for p in (0.0, *values)]


def spread(speedups: Sequence[float]) -> Spread:
    """Geometric mean, arithmetic mean (the paper's), median and smallest.

    Over correct kernels only, the geometric mean is KernelBench's
    `geometric_mean_speed_ratio_correct_only`.
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


def roofline(results: Sequence[Result]) -> float | None:
    """Median over the best kernels of their share of the roofline: its time divided by theirs."""
    kernels = [result.best for result in results if result.best is not None]
    return median(kernel.roofline_fraction for kernel in kernels) if kernels else None


def correct_share(results: Sequence[Result]) -> float | None:
    """Correct attempts divided by all finished attempts, unusable replies included; None without attempts."""
    attempts = [attempt for result in results for attempt in result.outcome.attempts]
    return sum(attempt.works for attempt in attempts) / len(attempts) if attempts else None


def attempts_to_best(results: Sequence[Result]) -> float | None:
    """Mean over runs with a correct kernel of how many attempts had finished when the best one did, it included."""
    positions = [
        1 + [attempt.id for attempt in result.outcome.attempts].index(result.outcome.best_attempt)
        for result in results
        if result.outcome.best_attempt is not None
    ]
    return fmean(positions) if positions else None


def best_by_attempt(results: Sequence[Result], attempts: int) -> list[float]:
    """For k = 1 to `attempts`: the geometric mean of the runs' speedups against eager, had they ended after k attempts.

    As the search measured them, without those that did not hold in the final check; a run without a correct kernel so far
    counts as 1. The last value is `of_all.geomean` but for what the final check measured otherwise.
    """
    courses = [_course(_standing(result.outcome), attempts) for result in results]
    return [geomean(values) for values in zip(*courses, strict=True)]


def _standing(outcome: Outcome) -> list[Attempted]:
    """The attempts, of which those that did not hold in the final check have failed; all, where nothing held."""
    nothing_held = outcome.confirmed and outcome.best is None
    return [
        attempt._replace(speedup_vs_eager=None, assured_speedup=None)
        if nothing_held or attempt.id in outcome.refuted
        else attempt
        for attempt in outcome.attempts
    ]


def _course(attempts: Sequence[Attempted], length: int) -> list[float]:
    """One run's speedup after each attempt; the last value holds where it ended early."""
    best: Attempted | None = None
    course = []
    for attempt in attempts[:length]:
        best = _best([attempt] if best is None else [best, attempt])
        course.append(
            FAILED if best is None or best.speedup_vs_eager is None else best.speedup_vs_eager
        )
    return course + [course[-1] if course else FAILED] * (length - len(course))


def _best(attempts: Sequence[Attempted]) -> Attempted | None:
    """The highest assured speedup; ties go to the older attempt, as in the tree."""
    working = [attempt for attempt in attempts if attempt.assured_speedup is not None]
    return max(working, key=lambda one: (one.assured_speedup or 0.0, -one.id), default=None)
