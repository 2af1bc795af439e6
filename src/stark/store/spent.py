"""What each role's calls took, added up by the database: no text is read."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, case, func, select
from sqlalchemy.orm import InstrumentedAttribute

from stark.core.usage import BYTES_PER_TOKEN, RoleUsage, Tokens
from stark.store.schema import CallRow


class Scope(NamedTuple):
    """Whose calls: of one run, or of its first attempts alone."""

    run_id: str
    attempts: int | None = None


def read_spent(connection: Connection, scope: Scope | None) -> dict[str, tuple[RoleUsage, ...]]:
    """By run, then by role in the order of its first call; None means every run. Agrees with `core.usage.by_role`."""
    counted = [] if scope is None else [CallRow.run_id == scope.run_id]
    if scope is not None and scope.attempts is not None:
        counted.append(CallRow.attempt <= scope.attempts)
    query = (
        select(
            CallRow.run_id,
            CallRow.role,
            func.count(),
            *_tokens(CallRow.input_tokens, CallRow.asked_bytes),
            *_tokens(CallRow.output_tokens, CallRow.answered_bytes),
            func.count(CallRow.dollars),
            func.coalesce(func.sum(CallRow.dollars), 0.0),
            func.sum(CallRow.seconds),
        )
        .where(*counted)
        .group_by(CallRow.run_id, CallRow.role)
        .order_by(CallRow.run_id, func.min(CallRow.attempt), func.min(CallRow.turn), CallRow.role)
    )
    found: defaultdict[str, list[RoleUsage]] = defaultdict(list)
    for run_id, role, calls, *numbers in connection.execute(query):
        in_told, in_estimated, out_told, out_estimated, priced, dollars, seconds = numbers
        found[run_id].append(
            RoleUsage(
                role=role,
                calls=calls,
                input=Tokens(told=in_told, estimated=in_estimated),
                output=Tokens(told=out_told, estimated=out_estimated),
                dollars=dollars if priced == calls else None,
                seconds=seconds,
            )
        )
    return {run_id: tuple(roles) for run_id, roles in found.items()}


def _tokens(
    told: InstrumentedAttribute[int | None], size: InstrumentedAttribute[int]
) -> tuple[ColumnElement[int], ...]:
    """What models told, and the estimate for the calls whose model told nothing, each rounded up as one alone is."""
    estimate = (size + (BYTES_PER_TOKEN - 1)) // BYTES_PER_TOKEN
    return (
        func.coalesce(func.sum(told), 0),
        func.coalesce(func.sum(case((told.is_(None), estimate), else_=0)), 0),
    )
