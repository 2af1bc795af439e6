"""What calls cost, added up by the database without reading a text."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, literal, select, union_all

from stark.core.usage import Spent
from stark.store.schema import AskedRow, CallRow

Roles = dict[str, Spent]
"""By role, in the order of their first call."""


def read_spent(
    connection: Connection, run_id: str | None = None, attempts: int | None = None
) -> dict[str, Roles]:
    """What calls cost by run and role: of every run, of one, or of the first `attempts` attempts of one.

    Calls whose reply was lost with their process count as what was reserved for them.
    """
    answered = _of(CallRow, run_id, attempts)
    lost = [*_of(AskedRow, run_id, attempts), AskedRow.outcome == "lost"]
    both = union_all(_calls().where(*answered), _lost().where(*lost)).subquery()
    names = list(Spent.model_fields)
    query = (
        select(both.c.run_id, both.c.role, *(func.sum(both.c[name]) for name in names))
        .group_by(both.c.run_id, both.c.role)
        .order_by(both.c.run_id, func.min(both.c.attempt), func.min(both.c.turn), both.c.role)
    )
    found: defaultdict[str, Roles] = defaultdict(dict)
    for run, role, *numbers in connection.execute(query):
        found[run][role] = Spent(**dict(zip(names, numbers, strict=True)))
    return dict(found)


def _of(
    table: type[CallRow | AskedRow], run_id: str | None, attempts: int | None
) -> list[ColumnElement[bool]]:
    chosen: list[ColumnElement[bool]] = []
    if run_id is not None:
        chosen.append(table.run_id == run_id)
    if attempts is not None:
        chosen.append(table.attempt <= attempts)
    return chosen


def _calls() -> Any:
    """A line per reply, its columns in the order of `Spent`."""
    return select(
        CallRow.run_id,
        CallRow.role,
        CallRow.attempt,
        CallRow.turn,
        literal(1).label("calls"),
        CallRow.input_tokens.label("input_tokens"),
        CallRow.output_tokens.label("output_tokens"),
        CallRow.estimated.label("estimated_calls"),
        CallRow.dollars.label("dollars"),
        CallRow.unpriced.label("unpriced_calls"),
        literal(0).label("lost_calls"),
        CallRow.seconds.label("seconds"),
    )


def _lost() -> Any:
    """A line per lost call; agrees with `core.call.Lost.spent`."""
    return select(
        AskedRow.run_id,
        AskedRow.role,
        AskedRow.attempt,
        literal(0),
        literal(1),
        AskedRow.reserved_tokens,
        literal(0),
        literal(1),
        AskedRow.reserved_dollars,
        literal(0),
        literal(1),
        literal(0.0),
    )
