"""The report of a bench, made from the store alone: results, summaries, differences, courses."""

from __future__ import annotations

from dataclasses import dataclass

from stark.bench.compare import Difference, compare
from stark.bench.metrics import Summary, best_by_attempt, summarize
from stark.bench.results import Result, by_level, by_strategy, results_of
from stark.core.bench import Bench
from stark.store import Store


@dataclass(frozen=True)
class Report:
    """All that is said about a bench as it stands."""

    bench: Bench
    results: tuple[Result, ...]
    """Of all places of the grid, those not ended included."""

    summaries: tuple[Summary, ...]
    """By level, then strategy. Only runs that have ended count, here and below."""

    differences: tuple[Difference, ...]
    """The bench's first strategy against each of the others."""

    courses: dict[tuple[str, str], list[float]]
    """By level and strategy: the geometric mean speedup against eager after each attempt, failed as 1."""

    @property
    def ended(self) -> tuple[Result, ...]:
        """The results that count."""
        return tuple(result for result in self.results if result.ended)

    @property
    def refused(self) -> list[str]:
        """The problems that cannot be used, in the order of the grid."""
        return list(dict.fromkeys(one.cell.problem for one in self.results if one.refused))

    @property
    def notes(self) -> list[str]:
        """What a reader should know before the numbers."""
        notes = [
            f"{len(self.ended)} of {len(self.results)} runs have ended; the others do not count"
        ]
        if len(self.ended) == len(self.results):
            several = len(self.results) > 1
            notes = [f"all {len(self.results)} runs have ended" if several else "its run has ended"]
        versions = sorted({result.outcome.version for result in self.results})
        notes.append(f"STARK {', '.join(versions)}")
        kernels = [result.outcome for result in self.ended if result.best is not None]
        if unconfirmed := sum(not outcome.confirmed for outcome in kernels):
            notes.append(
                f"{unconfirmed} of {len(kernels)} best kernels went through no final check; theirs are the search's figures"
            )
        unusable = {
            f"{result.cell.problem}: {result.outcome.ended_reason}"
            for result in self.results
            if result.refused
        }
        return [*notes, *sorted(unusable)]


def make_report(store: Store, bench: Bench) -> Report:
    """The report of the bench as far as it has come."""
    results = results_of(store, bench)
    ended = [result for result in results if result.ended]
    order = list(dict.fromkeys(cell.strategy for cell in bench.cells))
    summaries, differences, courses = [], [], {}
    for level, of_level in by_level(ended).items():
        found_first = by_strategy(of_level)
        strategies = {name: found_first[name] for name in order if name in found_first}
        for name, found in strategies.items():
            summaries.append(summarize(level, name, found))
            courses[level, name] = best_by_attempt(found, bench.attempts)
        first, *others = strategies
        for other in others:
            differences += compare(level, first, strategies[first], other, strategies[other])
    return Report(bench, results, tuple(summaries), tuple(differences), courses)
