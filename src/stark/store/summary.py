"""Short summaries of runs, for lists of many runs. Reading them loads no sources and no replies."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from stark.core.base import Frozen
from stark.core.measurement import Speedup
from stark.core.run import Ended
from stark.store.outcome import Check, best_of, read_attempts, read_checks
from stark.store.schema import RunRow


class RunSummary(Frozen):
    """One run in a list."""

    id: str
    created: datetime
    problem: str
    strategy: str
    language: str
    """In which a search writes; the attempts of an agent's run may be in others, too."""

    device: str | None = None
    """The device that the run was judged on; None until the reference was measured."""

    attempts: int
    """Number of attempts finished so far."""

    budget_attempts: int
    correct: int
    """How many of the finished attempts are correct."""

    best_attempt: int | None
    """The fastest attempt by the rules of `core.standing`; None if these rules rank no attempt."""

    latency_ms: float | None
    """Latency of the best attempt, from the final check if it had one."""

    speedup: Speedup | None
    """Speedup of the best attempt against eager."""

    confirmed: bool
    """Whether the best attempt passed a final check."""

    ended: Ended | None
    """None while the run goes on or waits to be resumed."""


def read_summaries(connection: Connection) -> list[RunSummary]:
    """Every run, the newest first."""
    attempts, checks = read_attempts(connection), read_checks(connection)
    query = select(RunRow.id, RunRow.body, RunRow.ended, RunRow.reference)
    summaries = []
    for run_id, body, ended, reference in connection.execute(query.order_by(RunRow.number.desc())):
        finished, checked = attempts[run_id], checks[run_id]
        best = best_of(finished, {attempt: check.speedup for attempt, check in checked.items()})
        searched = {one.id: Check(one.latency_ms, one.speedup) for one in finished}
        measured = checked if best in checked else searched
        latency_ms, speedup = measured.get(best or 0, Check())
        config = body["config"]
        summaries.append(
            RunSummary(
                id=run_id,
                created=body["created"],
                problem=body["problem"]["name"],
                strategy=config["strategy"]["name"],
                language=config["language"],
                device=reference and reference["device"]["name"],
                attempts=sum(one.counts for one in finished),
                budget_attempts=config["budget"]["attempts"],
                correct=sum(one.counts and one.works for one in finished),
                best_attempt=best,
                latency_ms=latency_ms,
                speedup=speedup,
                confirmed=best in checked,
                ended=ended,
            )
        )
    return summaries
