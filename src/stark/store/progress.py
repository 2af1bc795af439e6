"""How far every run has come, to see what has changed. Reading it loads no texts, no evaluations and no replies."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from stark.store.schema import AttemptRow, CallRow, NodeRow, PromotionRow, RunRow


class Progress(NamedTuple):
    """How far one run has come. Every change that a reader of the run can see changes one of these values."""

    number: int
    """The order of creation in this store."""

    reference: bool
    """Whether the reference has been measured."""

    ended: bool
    elapsed_s: float
    attempts: int = 0
    """Attempts begun; `nodes` counts the finished ones."""

    nodes: int = 0
    calls: int = 0
    in_flight: int = 0
    """Calls without an outcome, including calls that a killed process left in flight."""

    checks: int = 0
    """Final checks that have ended."""


def read_progress(connection: Connection) -> dict[str, Progress]:
    """The progress of every run, in the order of creation."""
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for name, of_run, *which in (
        ("attempts", AttemptRow.run_id),
        ("nodes", NodeRow.run_id),
        ("checks", PromotionRow.run_id),
        ("calls", CallRow.run_id),
        ("in_flight", CallRow.run_id, CallRow.outcome.is_(None)),
    ):
        query = select(of_run, func.count()).where(*which).group_by(of_run)
        for run_id, count in connection.execute(query):
            counts[run_id][name] = count
    state = (RunRow.reference.is_not(None), RunRow.ended.is_not(None), RunRow.elapsed_s)
    runs = select(RunRow.id, RunRow.number, *state).order_by(RunRow.number)
    return {
        run_id: Progress(number, bool(reference), bool(ended), elapsed_s, **counts[run_id])
        for run_id, number, reference, ended, elapsed_s in connection.execute(runs)
    }


def read_steps(connection: Connection, run_id: str) -> dict[int, str]:
    """The step of every attempt that has begun but not finished.

    A step is the role whose call is in flight, `waiting` before the first call, or else `judge`.
    """
    finished = select(NodeRow.attempt).where(NodeRow.run_id == run_id)
    begun = select(AttemptRow.attempt).where(
        AttemptRow.run_id == run_id, AttemptRow.attempt.not_in(finished)
    )
    calls = (
        select(CallRow.attempt, CallRow.role, CallRow.outcome)
        .where(CallRow.run_id == run_id, CallRow.attempt.not_in(finished))
        .order_by(CallRow.number)
    )
    steps = dict.fromkeys(connection.scalars(begun.order_by(AttemptRow.attempt)), "waiting")
    for attempt, role, outcome in connection.execute(calls):
        steps[attempt] = "judge" if outcome == "answered" else role
    return steps
