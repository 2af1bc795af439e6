"""Runs at a glance, for a list of many: read without loading a single source or reply."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, Subquery, and_, case, exists, func, select

from stark.core.base import Frozen
from stark.store.codec import is_refusal, read_budget
from stark.store.schema import NodeRow, PromotionRow, RunRow


class RunSummary(Frozen):
    """One line of `stark runs`."""

    id: str
    created: datetime
    problem: str
    strategy: str
    language: str
    attempts: int
    """Finished so far."""

    budget_attempts: int
    correct: int
    """How many of the finished attempts are correct."""

    latency_ms: float | None
    """Of the fastest correct candidate, by the lower end of its speedup's interval. Where there was a final check it is
    that check's, and None if nothing held in it."""

    speedup_vs_eager: float | None
    """Of that same candidate."""

    ended_reason: str | None
    """None while the run goes on or waits to be resumed."""

    @property
    def refused(self) -> bool:
        """Whether it ended because its problem cannot be used."""
        return is_refusal(self.ended_reason)


def summaries_query() -> Select[Any]:
    """One row per run, the newest first, as `read_summary` takes it."""
    counted = (
        select(
            NodeRow.run_id,
            func.count().label("attempts"),
            func.sum(case((NodeRow.status == "correct", 1), else_=0)).label("correct"),
        )
        .group_by(NodeRow.run_id)
        .subquery()
    )
    ranked, checked = _ranked(NodeRow), _ranked(PromotionRow)
    # Once there was a final check only what held counts, and nothing may have.
    was_checked = exists().where(PromotionRow.run_id == RunRow.id)
    return (
        select(
            RunRow.id,
            RunRow.body,
            RunRow.budget,
            RunRow.ended_reason,
            func.coalesce(counted.c.attempts, 0).label("attempts"),
            func.coalesce(counted.c.correct, 0).label("correct"),
            case((was_checked, checked.c.latency_ms), else_=ranked.c.latency_ms).label(
                "latency_ms"
            ),
            case((was_checked, checked.c.speedup_vs_eager), else_=ranked.c.speedup_vs_eager).label(
                "speedup_vs_eager"
            ),
        )
        .outerjoin(counted, counted.c.run_id == RunRow.id)
        .outerjoin(ranked, and_(ranked.c.run_id == RunRow.id, ranked.c.rank == 1))
        .outerjoin(checked, and_(checked.c.run_id == RunRow.id, checked.c.rank == 1))
        .order_by(RunRow.number.desc())
    )


def _ranked(table: type[NodeRow | PromotionRow]) -> Subquery:
    """The correct ones of each run, the fastest with rank 1."""
    fastest_first = (table.assured_speedup.desc(), table.attempt)
    rank = func.row_number().over(partition_by=table.run_id, order_by=fastest_first)
    return (
        select(table.run_id, table.latency_ms, table.speedup_vs_eager, rank.label("rank"))
        .where(table.latency_ms.is_not(None))
        .subquery()
    )


def read_summary(row: Row[Any]) -> RunSummary:
    """The summary in a row of `summaries_query`."""
    return RunSummary(
        id=row.id,
        created=row.body["created"],
        problem=row.body["problem"]["name"],
        strategy=row.body["config"]["strategy"]["name"],
        language=row.body["config"]["language"],
        attempts=row.attempts,
        budget_attempts=read_budget(row.budget).attempts,
        correct=row.correct,
        latency_ms=row.latency_ms,
        speedup_vs_eager=row.speedup_vs_eager,
        ended_reason=row.ended_reason,
    )
