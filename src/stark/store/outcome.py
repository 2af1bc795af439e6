"""What came of a run, as far as comparing many needs it: no prompt, no reply, one evaluation in full."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, func, select

from stark.core.evaluation import Correct
from stark.core.measurement import Speedup
from stark.core.run import Ended
from stark.core.standing import standing
from stark.core.usage import Spent
from stark.store.codec import read_ended, read_evaluation, read_speedup
from stark.store.schema import AttemptRow, NodeRow, PromotionRow, RunRow
from stark.store.spent import read_spent


class Attempted(NamedTuple):
    """A finished attempt in short."""

    id: int
    parent: int
    action: str
    status: str
    speedup: Speedup | None
    """Against eager; None unless it is correct."""

    duplicate_of: int | None = None

    @property
    def works(self) -> bool:
        """Whether the candidate is correct."""
        return self.status == "correct"


class Outcome(NamedTuple):
    """A run as it stands, up to some attempt."""

    version: str
    """Of STARK when the run was created."""

    ended: Ended | None
    attempts: tuple[Attempted, ...]
    """In the order in which they finished."""

    checks: dict[int, Speedup | None]
    """What the final check measured against eager, by attempt; None for those that failed it."""

    best_attempt: int | None
    """The attempt with the star (`core.standing`)."""

    best: Correct | None
    """Its evaluation: the final check's once there was one, else the search's."""

    roles: dict[str, Spent]
    """What the calls of these attempts cost, those in flight included."""

    elapsed_s: float
    """Active time up to the last of the attempts."""

    @property
    def confirmed(self) -> bool:
        """Whether there was a final check."""
        return bool(self.checks)

    @property
    def spent(self) -> Spent:
        """All roles together."""
        return sum(self.roles.values(), Spent())


def read_outcome(connection: Connection, run_id: str, attempts: int) -> Outcome:
    """The outcome of a run's attempts 1 to `attempts`."""
    counted = (NodeRow.run_id == run_id, NodeRow.attempt <= attempts)
    run = connection.execute(
        select(RunRow.body, RunRow.ended_kind, RunRow.ended_detail).where(RunRow.id == run_id)
    ).one()
    finished = _attempts(connection, counted)
    checks = _checks(connection, run_id, attempts)
    own = {one.id: one.speedup for one in finished if one.duplicate_of is None}
    best_attempt = standing(own, checks).best
    return Outcome(
        version=run.body["version"],
        ended=read_ended(run.ended_kind, run.ended_detail),
        attempts=finished,
        checks=checks,
        best_attempt=best_attempt,
        best=None if best_attempt is None else _best(connection, run_id, best_attempt, checks),
        roles=read_spent(connection, run_id, attempts).get(run_id, {}),
        elapsed_s=connection.scalar(select(func.max(NodeRow.elapsed_s)).where(*counted)) or 0.0,
    )


def _attempts(
    connection: Connection, counted: tuple[ColumnElement[bool], ...]
) -> tuple[Attempted, ...]:
    query = (
        select(
            NodeRow.attempt,
            AttemptRow.parent,
            AttemptRow.action,
            NodeRow.status,
            NodeRow.duplicate_of,
            NodeRow.speedup,
            NodeRow.speedup_low,
            NodeRow.speedup_high,
        )
        .join(
            AttemptRow,
            (AttemptRow.run_id == NodeRow.run_id) & (AttemptRow.attempt == NodeRow.attempt),
        )
        .where(*counted)
        .order_by(NodeRow.position)
    )
    return tuple(
        Attempted(attempt, parent, action, status, read_speedup(*speedup), duplicate_of)
        for attempt, parent, action, status, duplicate_of, *speedup in connection.execute(query)
    )


def _checks(connection: Connection, run_id: str, attempts: int) -> dict[int, Speedup | None]:
    query = select(
        PromotionRow.attempt,
        PromotionRow.speedup,
        PromotionRow.speedup_low,
        PromotionRow.speedup_high,
    ).where(PromotionRow.run_id == run_id, PromotionRow.attempt <= attempts)
    return {attempt: read_speedup(*found) for attempt, *found in connection.execute(query)}


def _best(
    connection: Connection, run_id: str, attempt: int, checks: dict[int, Speedup | None]
) -> Correct:
    table = PromotionRow if checks else NodeRow
    query = select(table.body).where(table.run_id == run_id, table.attempt == attempt)
    body = connection.scalars(query).one()
    found = read_evaluation(body if checks else body["evaluation"])
    assert isinstance(found, Correct)  # the standing has no others
    return found
