"""What came of a run, as far as comparing many needs it: no prompt, no reply, one evaluation in full."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, select

from stark.core.evaluation import Correct
from stark.core.measurement import Speedup
from stark.core.usage import RoleUsage, Usage
from stark.store.codec import is_refusal
from stark.store.schema import AttemptRow, CallRow, NodeRow, PromotionRow, RunRow
from stark.store.spent import Scope, read_spent


class Attempted(NamedTuple):
    """A finished attempt in short."""

    id: int
    parent: int
    action: str
    status: str
    speedup_vs_eager: float | None
    """None unless it is correct, as is `assured_speedup`."""

    assured_speedup: float | None

    @property
    def works(self) -> bool:
        """Whether the candidate is correct."""
        return self.status == "correct"

    @property
    def speedup(self) -> Speedup | None:
        """Against eager; None unless it is correct. The upper end mirrors the lower one."""
        ratio, low = self.speedup_vs_eager, self.assured_speedup
        if ratio is None or low is None:
            return None
        return Speedup(reference="eager", ratio=ratio, low=low, high=ratio * ratio / low)


class Outcome(NamedTuple):
    """A run as it stands, up to some attempt."""

    version: str
    """Of STARK when it was made."""

    ended_reason: str | None
    attempts: tuple[Attempted, ...]
    """In the order in which they finished."""

    best: Correct | None
    """What the final check measured of the fastest attempt that held in it; of a run without a final check what the
    search measured of its fastest."""

    best_attempt: int | None
    """The number of the attempt that `best` is of."""

    confirmed: bool
    """Whether there was a final check."""

    refuted: frozenset[int]
    """Attempts that did not hold in the final check."""

    usage: Usage
    """Calls, tokens and price; the time of waiting is not counted here."""

    told: Usage
    """What models told of that: limits are held against it."""

    roles: tuple[RoleUsage, ...]
    """The same by role, with estimates of the tokens that no model told, and the time of waiting."""

    elapsed_s: float
    """Active time up to the last of the attempts."""

    @property
    def refused(self) -> bool:
        """Whether it ended because its problem cannot be used."""
        return is_refusal(self.ended_reason)


def read_outcome(connection: Connection, run_id: str, attempts: int) -> Outcome:
    """The outcome of a run's attempts 1 to `attempts`."""
    counted = (NodeRow.run_id == run_id, NodeRow.attempt <= attempts)
    run = connection.execute(
        select(RunRow.body, RunRow.ended_reason).where(RunRow.id == run_id)
    ).one()
    checks = (PromotionRow.run_id == run_id, PromotionRow.attempt <= attempts)
    checked = connection.execute(
        select(PromotionRow.attempt, PromotionRow.assured_speedup).where(*checks)
    ).all()
    elapsed_s = connection.scalar(select(func.max(NodeRow.elapsed_s)).where(*counted))
    usage, told = _usage(connection, run_id, attempts)
    best_attempt, best = (_held(connection, checks) if checked else _best(connection, counted)) or (
        None,
        None,
    )
    return Outcome(
        version=run.body["version"],
        ended_reason=run.ended_reason,
        attempts=_attempts(connection, counted),
        best=best,
        best_attempt=best_attempt,
        confirmed=bool(checked),
        refuted=frozenset(attempt for attempt, speedup in checked if speedup is None),
        usage=usage,
        told=told,
        roles=read_spent(connection, Scope(run_id, attempts)).get(run_id, ()),
        elapsed_s=elapsed_s or 0.0,
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
            NodeRow.speedup_vs_eager,
            NodeRow.assured_speedup,
        )
        .join(
            AttemptRow,
            (AttemptRow.run_id == NodeRow.run_id) & (AttemptRow.attempt == NodeRow.attempt),
        )
        .where(*counted)
        .order_by(NodeRow.position)
    )
    return tuple(Attempted(*row) for row in connection.execute(query))


def _best(
    connection: Connection, counted: tuple[ColumnElement[bool], ...]
) -> tuple[int, Correct] | None:
    """The fastest attempt of the search. Ties go to the older one, as in the tree."""
    row = connection.execute(_fastest(NodeRow, counted)).one_or_none()
    return row and (row.attempt, Correct.model_validate(row.body["evaluation"]))


def _held(
    connection: Connection, counted: tuple[ColumnElement[bool], ...]
) -> tuple[int, Correct] | None:
    """The fastest attempt of the final check."""
    row = connection.execute(_fastest(PromotionRow, counted)).one_or_none()
    return row and (row.attempt, Correct.model_validate(row.body))


def _fastest(
    table: type[NodeRow | PromotionRow], counted: tuple[ColumnElement[bool], ...]
) -> Select[Any]:
    return (
        select(table.attempt, table.body)
        .where(*counted, table.assured_speedup.is_not(None))
        .order_by(table.assured_speedup.desc(), table.attempt)
        .limit(1)
    )


def _usage(connection: Connection, run_id: str, attempts: int) -> tuple[Usage, Usage]:
    """Of all calls, those of attempts in flight included: with sums unknown where a part is, and as far as it was told."""
    counted = (CallRow.run_id == run_id, CallRow.attempt <= attempts)
    columns = (CallRow.input_tokens, CallRow.output_tokens, CallRow.dollars)
    known = [func.count(column) for column in columns]
    sums = [func.coalesce(func.sum(column), 0) for column in columns]
    calls, *values = connection.execute(select(func.count(), *known, *sums).where(*counted)).one()
    names = ("input_tokens", "output_tokens", "dollars")
    told = dict(zip(names, values[3:], strict=True))
    unknown = {name: None for name, count in zip(names, values[:3], strict=True) if count < calls}
    return Usage(calls=calls, **told | unknown), Usage(calls=calls, **told)
