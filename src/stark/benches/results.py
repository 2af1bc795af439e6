"""The results of a bench's runs, and how the report groups them: by level and by strategy.

A level is a level of KernelBench or a folder of problems.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stark.core.bench import Bench, Cell
from stark.core.evaluation import Correct
from stark.core.measurement import Speedup
from stark.core.standing import rank_key
from stark.store import CheckedOn, Outcome, Store

ALL_LEVELS = "all"
"""The name under which reports summarize all levels together."""


class Result(NamedTuple):
    """One cell of the grid (problem x strategy x seed) and the outcome of its run."""

    cell: Cell
    outcome: Outcome

    @property
    def problem(self) -> tuple[str, str]:
        """What identifies the problem: its level and its name."""
        return self.cell.level, self.cell.problem

    @property
    def pair(self) -> tuple[str, str, int]:
        """The problem and the seed. Strategies are compared on runs that have both in common."""
        return *self.problem, self.cell.seed

    @property
    def ended_reason(self) -> str | None:
        """Why the run ended, such as a budget limit or a refused problem; None if it has not ended."""
        return self.outcome.ended.detail if self.outcome.ended else None

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.outcome.ended is not None

    @property
    def refused(self) -> bool:
        """Whether the run ended because its problem cannot be used."""
        return self.outcome.ended is not None and self.outcome.ended.kind == "refused"

    @property
    def best(self) -> Correct | None:
        """The evaluation of the run's best kernel; None without a correct kernel."""
        return self.outcome.best

    @property
    def own_checks(self) -> Mapping[int, CheckedOn]:
        """The final checks on the run's own kind of machine; empty unless leaders are judged on other kinds too."""
        return next(iter(self.outcome.classes.values()), {})

    @property
    def search_speedups(self) -> list[Speedup | None]:
        """Each attempt's speedup against eager as the search measured it, in the order in which the attempts finished.

        None for an attempt that failed in the search or in the final check. If there was a final check and no attempt
        passed it, all speedups are None. What tuning found replaces the attempt that finished before it, if it is faster.
        """
        if self.outcome.confirmed and self.best is None:
            return [None] * len(self.outcome.made)
        checks = self.outcome.checks
        speedups: list[Speedup | None] = []
        for one in self.outcome.attempts:
            found = None if checks.get(one.id, one.speedup) is None else one.speedup
            if one.counts or not speedups:
                speedups.append(found)
            elif found is not None:
                speedups[-1] = min(
                    filter(None, (speedups[-1], found)), key=lambda each: rank_key(each, 0)
                )
        return speedups

    def speedup(self, reference: str) -> float | None:
        """The best kernel's speedup; None if there is no correct kernel or it was not measured against this reference."""
        if self.best is None or reference not in self.best.references:
            return None
        return self.best.speedup_vs(reference).ratio


def results_of(store: Store, bench: Bench) -> tuple[Result, ...]:
    """The results in the order of the grid."""
    return tuple(Result(cell, store.outcome(cell.run_id, bench.attempts)) for cell in bench.cells)


def finished_by_all(results: Sequence[Result]) -> tuple[Result, ...]:
    """The results on the pairs of problem and seed that all strategies finished.

    If a limit stops a bench early, the strategies may have finished different problems. Their averages are comparable
    only over the pairs that all strategies finished.
    """
    unfinished = {one.pair for one in results if not one.ended}
    return tuple(one for one in results if one.pair not in unfinished)


def by_level(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results by level; if there are several levels, also all results under `ALL_LEVELS`."""
    levels: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        levels[result.cell.level].append(result)
    return levels if len(levels) < 2 else {**levels, ALL_LEVELS: list(results)}


def by_strategy(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results by strategy."""
    strategies: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        strategies[result.cell.strategy].append(result)
    return strategies
