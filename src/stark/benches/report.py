"""The report of a bench as data, made from the store alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stark.benches.compare import Difference, compare
from stark.benches.metrics import Summary, best_by_attempt, summarize
from stark.benches.results import (
    Result,
    by_level,
    by_strategy,
    finished_by_all,
)
from stark.core.bench import Bench
from stark.store import Store


@dataclass(frozen=True)
class Report:
    """The state of a bench. All metrics cover only runs that have ended."""

    bench: Bench
    results: tuple[Result, ...]
    """One result for each cell of the grid (problem x strategy x seed), including unfinished runs."""

    compared: tuple[Result, ...]
    """The results on the pairs of problem and seed that all strategies finished. `summaries`, `differences` and `courses`
    are computed from these results."""

    summaries: tuple[Summary, ...]
    """By level, then strategy."""

    own_summaries: tuple[Summary, ...]
    """As `summaries`, but over all ended runs of each strategy; empty if all ended runs are in `compared`."""

    differences: tuple[Difference, ...]
    """The bench's first strategy against each of the others."""

    courses: dict[tuple[str, str], list[float]]
    """By level and strategy: the geometric mean speedup against eager after each attempt (`best_by_attempt`)."""

    @property
    def ended(self) -> tuple[Result, ...]:
        """The results of all runs that have ended."""
        return tuple(result for result in self.results if result.ended)

    @property
    def refused(self) -> list[str]:
        """The problems that cannot be used, in the order of the grid."""
        return list(dict.fromkeys(one.cell.problem for one in self.results if one.refused))

    @property
    def notes(self) -> list[str]:
        """What a reader should know before reading the numbers."""
        versions = sorted({result.outcome.version for result in self.results})
        refusals = {
            f"{one.cell.problem}: {one.ended_reason}" for one in self.results if one.refused
        }
        notes = [*self._coverage(), f"STARK {', '.join(versions)}", self._lessons()]
        kernels = [result.outcome for result in self.compared if result.best is not None]
        if unconfirmed := sum(not outcome.confirmed for outcome in kernels):
            notes.append(
                f"{unconfirmed} of {len(kernels)} best kernels had no final check; their figures were measured by the search"
            )
        notes += [
            f"{one.strategy}, {one.level}: tuning made the best kernel {one.tuning_gain:.2f}x as fast in {one.tuned} of "
            f"{one.runs} runs (geometric mean; contained in all speedups)"
            for one in self.summaries
            if one.tuning_gain is not None
        ]
        return [*notes, *sorted(refusals)]

    def _lessons(self) -> str:
        """Whether prompts had lessons of earlier runs, and of which."""
        taught = [result.outcome.taught_by for result in self.results if result.outcome.taught_by]
        if not taught:
            return "no prompt had lessons of earlier runs"
        teachers = sorted({run for runs in taught for run in runs})
        of_all = f"the prompts of {len(taught)} of {len(self.results)} runs"
        return f"{of_all} had lessons of earlier runs on other problems: {', '.join(teachers)}"

    def _coverage(self) -> list[str]:
        """How many runs have ended, and on how many problems and seeds the strategies are compared."""
        ended, runs = len(self.ended), len(self.results)
        if ended == runs:
            return [f"all {runs} runs have ended" if runs > 1 else "the run has ended"]
        notes = [f"{ended} of {runs} runs have ended; the others do not count"]
        if len(by_strategy(self.results)) > 1:
            compared, pairs = ({one.pair for one in of} for of in (self.compared, self.results))
            notes.append(
                f"strategies are compared on the {len(compared)} of {len(pairs)} "
                "pairs of problem and seed that all strategies finished"
            )
        return notes


def make_report(store: Store, bench: Bench) -> Report:
    """The report of the bench in its current state."""
    results = tuple(
        Result(cell, store.outcome(cell.run_id, bench.attempts)) for cell in bench.cells
    )
    ended = tuple(result for result in results if result.ended)
    compared = finished_by_all(results)
    differences: list[Difference] = []
    courses = {}
    for level, of_level in by_level(compared).items():
        strategies = by_strategy(of_level)
        for name, found in strategies.items():
            courses[level, name] = best_by_attempt(found, bench.attempts)
        (first, of_first), *others = strategies.items()
        for other, found in others:
            differences += compare(level, first, of_first, other, found)
    return Report(
        bench=bench,
        results=results,
        compared=compared,
        summaries=_summaries(compared),
        own_summaries=() if ended == compared else _summaries(ended),
        differences=tuple(differences),
        courses=courses,
    )


def _summaries(results: Sequence[Result]) -> tuple[Summary, ...]:
    return tuple(
        summarize(level, name, found)
        for level, of_level in by_level(results).items()
        for name, found in by_strategy(of_level).items()
    )
