"""What has happened in a run, the newest first, as a list for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from stark.core.base import Frozen
from stark.explain.evaluation import checked, speedup_text
from stark.explain.numbers import duration
from stark.explain.run import STEP_WORDS
from stark.report.attempt_document import AttemptDocument
from stark.report.view import RunView

NEWEST = 60


class Happened(Frozen):
    """One event."""

    attempt: int | None
    status: str
    """The status of the evaluation, or `running` or `ended`."""

    time: str | None
    """The run's active time since its start, such as `+12:30`; null if it is unknown."""

    text: str


def happened(view: RunView, finished: Sequence[AttemptDocument]) -> tuple[Happened, ...]:
    """The newest events; `finished` are the attempts in the order in which they finished."""
    return tuple(islice(_newest_first(view, finished), NEWEST))


def _newest_first(view: RunView, finished: Sequence[AttemptDocument]) -> Iterator[Happened]:
    if view.ended is not None:
        clock = _clock(view.elapsed_s)
        yield Happened(attempt=None, status="ended", time=clock, text=view.ended.detail)
    for attempt, step in reversed(list(view.steps.items())):
        yield Happened(
            attempt=attempt, status="running", time=None, text=STEP_WORDS.get(step, step)
        )
    for attempt, found in reversed(list(view.promotions.items())):
        text = f"final check: {checked(found)}"
        yield Happened(attempt=attempt, status=found.status, time=None, text=text)
    for each in reversed(finished):
        if each.works:
            text = ": ".join(filter(None, (speedup_text(each.speedups["eager"]), each.idea)))
        else:
            text = f"{each.status.replace('_', ' ')}: {each.reason}"
        time = _clock(each.finished_s)
        yield Happened(attempt=each.attempt, status=each.status, time=time, text=text)


def _clock(seconds: float | None) -> str | None:
    return (
        f"+{duration(seconds)}" if seconds and seconds >= 1 else None
    )  # a recording may have no times
