"""What all runs of a bench have spent together, and which of its limits that reaches."""

from __future__ import annotations

import time

from stark.core.bench import Bench
from stark.core.usage import Budget, Usage
from stark.store import Store


class Account:
    """The running total of one session, on top of what the store has of earlier ones."""

    def __init__(self, budget: Budget, attempts: int = 0, usage: Usage | None = None) -> None:
        self.budget = budget
        self.finished = attempts
        """Attempts that are stored."""

        self.correct = 0
        """Of those that finished in this session."""

        self.usage = usage or Usage()
        self._told = self.usage.told
        self._in_flight = 0
        self._begin_s = time.monotonic()

    @classmethod
    def of_store(cls, store: Store, bench: Bench) -> Account:
        """The account of a bench as far as it has come."""
        account = cls(bench.budget)
        begun = store.begun()
        for run_id in (cell.run_id for cell in bench.cells if cell.run_id in begun):
            outcome = store.outcome(run_id, bench.attempts)
            account.finished += len(outcome.attempts)
            account.usage += outcome.usage
            account._told += outcome.told
        return account

    def begin(self) -> None:
        """An attempt set out."""
        self._in_flight += 1

    def finish(self, works: bool) -> None:
        """An attempt is stored."""
        self._in_flight -= 1
        self.finished += 1
        self.correct += works

    def set_aside(self, attempts: int) -> None:
        """So many that had set out wait for another session."""
        self._in_flight -= attempts

    def pay(self, usage: Usage) -> None:
        """A model answered."""
        self.usage += usage
        self._told += usage.told

    @property
    def begun(self) -> int:
        """Attempts that are stored, and those in flight."""
        return self.finished + self._in_flight

    @property
    def elapsed_s(self) -> float:
        """Since this session began."""
        return time.monotonic() - self._begin_s

    def limit(self) -> str | None:
        """The limit of the whole bench that is reached, in words. What is unknown counts as nothing."""
        reached = self.budget.exhausted_by(self.begun, self._told, self.elapsed_s / 60)
        return reached and f"{reached} by the whole bench"
