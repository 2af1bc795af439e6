"""Runs at a glance, for a list of many: read without loading a single source or reply."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime

from sqlalchemy import Connection, select

from stark.core.base import Frozen
from stark.core.measurement import Speedup
from stark.core.run import Ended
from stark.core.standing import standing
from stark.store.codec import read_budget, read_ended, read_speedup
from stark.store.schema import NodeRow, PromotionRow, RunRow


class RunSummary(Frozen):
    """One run of a list."""

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

    best_attempt: int | None
    """The attempt with the star (`core.standing`)."""

    latency_ms: float | None
    """Of that attempt, as its final check measured it once there was one."""

    speedup: Speedup | None
    """Of that attempt against eager."""

    ended: Ended | None
    """None while the run goes on or waits to be resumed."""


Measured = dict[int, tuple[float | None, Speedup | None]]
"""Latency in milliseconds and speedup, by attempt."""


def read_summaries(connection: Connection) -> list[RunSummary]:
    """Every run, the newest first."""
    attempts, checks = _measured(connection, NodeRow), _measured(connection, PromotionRow)
    repeated = select(NodeRow.run_id, NodeRow.attempt).where(NodeRow.duplicate_of.is_not(None))
    duplicates = {(run_id, attempt) for run_id, attempt in connection.execute(repeated)}
    columns = (RunRow.id, RunRow.body, RunRow.budget, RunRow.ended_kind, RunRow.ended_detail)
    found = []
    for id, body, budget, kind, detail in connection.execute(
        select(*columns).order_by(RunRow.number.desc())
    ):
        of_run, of_checks = attempts.get(id, {}), checks.get(id, {})
        best = standing(
            {
                attempt: speedup
                for attempt, (_, speedup) in of_run.items()
                if (id, attempt) not in duplicates
            },
            {attempt: speedup for attempt, (_, speedup) in of_checks.items()},
        ).best
        latency_ms, speedup = (of_checks or of_run).get(best or 0, (None, None))
        config = body["config"]
        found.append(
            RunSummary(
                id=id,
                created=body["created"],
                problem=body["problem"]["name"],
                strategy=config["strategy"]["name"],
                language=config["language"],
                attempts=len(of_run),
                budget_attempts=read_budget(budget).attempts,
                correct=Counter(speedup is not None for _, speedup in of_run.values())[True],
                best_attempt=best,
                latency_ms=latency_ms,
                speedup=speedup,
                ended=read_ended(kind, detail),
            )
        )
    return found


def _measured(connection: Connection, table: type[NodeRow | PromotionRow]) -> dict[str, Measured]:
    """What was measured of every attempt, by run."""
    runs: defaultdict[str, Measured] = defaultdict(dict)
    query = select(
        table.run_id,
        table.attempt,
        table.latency_ms,
        table.speedup,
        table.speedup_low,
        table.speedup_high,
    )
    for run_id, attempt, latency_ms, *speedup in connection.execute(query):
        runs[run_id][attempt] = (latency_ms, read_speedup(*speedup))
    return dict(runs)
