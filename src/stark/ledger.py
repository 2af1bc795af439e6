"""What a run has spent, what its calls in flight are expected to cost, and whether another call may start.

Every model call is admitted first: its expected cost is reserved. When the reply arrives, the actual cost replaces
the reservation. A call is admitted if all charges and reservations, plus its own expected cost, stay within the limit.
If no call is in flight, a call of any expected cost is admitted as long as the limit is not reached. So a limit is
exceeded by one call at most, provided no call costs more than expected.

A ledger may have a parent. For example, the bench's ledger is the parent of the ledger of each run in the bench. A call
must fit the budgets of both ledgers. Nothing here depends on a store or a model.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from stark.core.run import Ended
from stark.core.usage import Budget, Cost, Spent
from stark.explain.numbers import counted


class LimitReached(Exception):
    """A call was not admitted. Its attempt stays unfinished until the run is resumed with a larger budget."""

    def __init__(self, ended: Ended, shared: bool) -> None:
        """`shared` says that the limit is a parent's, not the run's own."""
        super().__init__(ended.detail)
        self.ended, self.shared = ended, shared


@dataclass(frozen=True)
class Reservation:
    """The expected cost of a call in flight."""

    role: str
    cost: Cost


class Ledger:
    """The account of one run, or of several that share a budget."""

    def __init__(
        self,
        budget: Budget,
        parent: Ledger | None = None,
        *,
        attempts: int = 0,
        spent: Mapping[str, Spent] | None = None,
        elapsed_s: float = 0.0,
    ) -> None:
        """`attempts`, `spent` (by role) and `elapsed_s` are what earlier processes used on a resumed run."""
        self.budget = budget
        self.attempts = attempts
        """Attempts begun, finished or not."""

        self._line: list[Ledger] = [self, *(parent._line if parent is not None else ())]
        """This ledger and its parents."""

        self.spent_by_role: dict[str, Spent] = dict(spent or {})
        self._largest: dict[str, Cost] = {}
        self._reserved: list[Reservation] = []
        self._earlier_s, self._start_s = elapsed_s, time.monotonic()
        self._changed = asyncio.Event()  # replaced whenever it is set

    @property
    def spent(self) -> Spent:
        """Everything that was charged."""
        return sum(self.spent_by_role.values(), Spent())

    @property
    def elapsed_s(self) -> float:
        """Time spent working on the run, including that of earlier processes."""
        return self._earlier_s + time.monotonic() - self._start_s

    def begin_attempt(self) -> None:
        """Count an attempt, here and in the parents."""
        for ledger in self._line:
            ledger.attempts += 1

    @property
    def was_answered(self) -> bool:
        """Whether a model ever answered a call of this ledger or of a parent."""
        return any(one.spent.calls > one.spent.lost_calls for one in self._line)

    @property
    def limits_dollars(self) -> bool:
        """Whether there is a dollar limit here or in a parent."""
        return any(ledger.budget.dollars is not None for ledger in self._line)

    def own_limit(self) -> Ended | None:
        """The limit of this ledger's own budget that is reached, or None."""
        return reached(self.budget, self.attempts, self.spent.cost, self.elapsed_s / 60)

    def shared_limit(self) -> Ended | None:
        """The limit of a parent's budget that is reached, or None."""
        return next(filter(None, (parent.own_limit() for parent in self._line[1:])), None)

    @property
    def may_ask(self) -> bool:
        """Whether no limit on tokens or dollars is reached, here or in a parent."""
        return self._refusal() is None

    def _refusal(self) -> LimitReached | None:
        """Limits on attempts and minutes keep new attempts from starting, but refuse no call."""
        for ledger in self._line:
            if limit := reached(ledger.budget, 0, ledger.spent.cost, 0.0):
                return LimitReached(limit, shared=ledger is not self)
        return None

    async def admit(self, role: str, at_most: Cost) -> Reservation:
        """Reserve the expected cost of a call; while it does not fit, wait for calls in flight to return.

        The expected cost is the highest cost of this role's calls in this run. If there are no such calls yet, it is
        the highest cost of the role's calls in the runs that share a parent's budget; if those runs have none either,
        it is `at_most`. Raises LimitReached if a limit on tokens or dollars is reached.
        """
        while True:
            known = (ledger._largest[role] for ledger in self._line if role in ledger._largest)
            reservation = Reservation(role, next(known, at_most))
            if refusal := self._refusal():
                raise refusal
            full = next((one for one in self._line if not one._fits(reservation.cost)), None)
            if full is None:
                for ledger in self._line:
                    ledger._reserved.append(reservation)
                return reservation
            await full._changed.wait()

    def charge(self, reservation: Reservation, spent: Spent) -> None:
        """Replace a reservation by the call's actual cost, which is `Spent()` for a refused call."""
        for ledger in self._line:
            ledger._reserved.remove(reservation)
            role = reservation.role
            if spent.calls:
                ledger.spent_by_role[role] = ledger.spent_by_role.get(role, Spent()) + spent
            if spent.calls > spent.lost_calls:
                ledger.learn(role, spent.cost)
            ledger._changed.set()
            ledger._changed = asyncio.Event()

    def learn(self, role: str, cost: Cost) -> None:
        """Note a call's cost: later calls of the role reserve the highest cost noted."""
        known = self._largest.get(role, Cost())
        self._largest[role] = Cost(
            tokens=max(known.tokens, cost.tokens), dollars=max(known.dollars, cost.dollars)
        )

    def _fits(self, cost: Cost) -> bool:
        if not self._reserved:
            return True
        whole = sum((one.cost for one in self._reserved), self.spent.cost) + cost
        budget = self.budget
        return (budget.tokens is None or whole.tokens <= budget.tokens) and (
            budget.dollars is None or whole.dollars <= budget.dollars
        )


def reached(budget: Budget, attempts: int, cost: Cost, minutes: float) -> Ended | None:
    """The first limit that these totals reach, or None."""
    if attempts >= budget.attempts:
        return Ended(kind="attempts", detail=f"{counted(budget.attempts, 'attempt')} made")
    if budget.tokens is not None and cost.tokens >= budget.tokens:
        detail = f"{cost.tokens:,} of {budget.tokens:,} tokens used"
        return Ended(kind="tokens", detail=detail)
    if budget.dollars is not None and cost.dollars >= budget.dollars:
        detail = f"${cost.dollars:.2f} of ${budget.dollars:.2f} spent"
        return Ended(kind="dollars", detail=detail)
    if budget.minutes is not None and minutes >= budget.minutes:
        return Ended(kind="minutes", detail=f"{budget.minutes:g} minutes passed")
    return None
