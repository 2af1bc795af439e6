"""What came of every run of a bench, read from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stark.core.bench import Bench, Cell
from stark.core.evaluation import Correct
from stark.store import Outcome, Store

ALL_LEVELS = "all"
"""Stands for the whole suite where it has several levels."""


class Result(NamedTuple):
    """One place of the grid and its run."""

    cell: Cell
    outcome: Outcome

    @property
    def ended(self) -> bool:
        """Whether the run used its budget up, or showed that its problem cannot be used. Only such runs are compared."""
        return self.outcome.ended_reason is not None

    @property
    def refused(self) -> bool:
        """Whether it ended because its problem cannot be used."""
        return self.outcome.refused

    @property
    def best(self) -> Correct | None:
        """The kernel that the run hands out; None where no attempt is correct."""
        return self.outcome.best

    def speedup(self, reference: str) -> float | None:
        """Of the best kernel against a reference; None without a kernel, or where it was not measured."""
        if self.best is None or reference not in self.best.references:
            return None
        return self.best.speedup_vs(reference).ratio

    @property
    def roofline_speedup(self) -> float | None:
        """The speedup against eager that a kernel at the roofline would have; None without a kernel."""
        if self.best is None or self.best.roofline.floor_ms == 0:
            return None
        return self.best.references["eager"].latency_ms / self.best.roofline.floor_ms


def results_of(store: Store, bench: Bench) -> tuple[Result, ...]:
    """The results in the order of the grid."""
    return tuple(Result(cell, store.outcome(cell.run_id, bench.attempts)) for cell in bench.cells)


def by_level(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of each level, and of all where there are several."""
    levels: dict[str, list[Result]] = {}
    for result in results:
        levels.setdefault(result.cell.level, []).append(result)
    return levels if len(levels) < 2 else {**levels, ALL_LEVELS: list(results)}


def by_strategy(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of each strategy."""
    strategies: dict[str, list[Result]] = {}
    for result in results:
        strategies.setdefault(result.cell.strategy, []).append(result)
    return strategies
