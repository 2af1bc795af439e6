"""What has happened in a run, the newest first, as a list for people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from stark.core.base import Frozen
from stark.core.evaluation import Correct
from stark.explain.evaluation import checked, reason, speedup_text, status
from stark.explain.numbers import duration
from stark.explain.run import idea
from stark.report.view import RunView

NEWEST = 60


class Happened(Frozen):
    """One event."""

    attempt: int | None
    status: str
    """The status of the evaluation, or `running` or `ended`."""

    time: str | None
    """The run's active time, as on a clock; null if it is unknown."""

    text: str


def happened(view: RunView) -> tuple[Happened, ...]:
    """The newest events."""
    return tuple(islice(_newest_first(view), NEWEST))


def _newest_first(view: RunView) -> Iterator[Happened]:
    if view.ended is not None:
        yield Happened(
            attempt=None, status="ended", time=_clock(view.elapsed_s), text=view.ended.detail
        )
    for attempt, step in reversed(list(view.steps.items())):
        yield Happened(attempt=attempt, status="running", time=None, text=f"in progress: {step}")
    for attempt, found in reversed(list(view.promotions.items())):
        text = f"final check: {checked(found)}"
        yield Happened(attempt=attempt, status=found.status, time=None, text=text)
    for node in reversed(view.nodes):
        found = node.evaluation
        if isinstance(found, Correct):
            text = f"{speedup_text(found.speedup_vs('eager'))}: {idea(node)}"
        else:
            text = f"{status(found)}: {reason(found)}"
        time = _clock(view.finished_s.get(node.id))
        yield Happened(attempt=node.id, status=found.status, time=time, text=text)


def _clock(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)
