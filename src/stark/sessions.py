"""A run with its models, its judge and its policy, ready to be worked on: what `optimize` and `resume` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stark.configuration import ROLE_MODELS
from stark.core.errors import RecordingError, UsageError
from stark.core.problem import Problem
from stark.core.run import Run
from stark.core.usage import Spent
from stark.correspondence import LiveReplies, Replies
from stark.estimate import estimate
from stark.evaluator.executors import Executor
from stark.events import OnEvent, Prepared
from stark.ledger import Ledger
from stark.loop import work_on
from stark.recording import RecordedCompiler, RecordedReplies, Recording, read_recording
from stark.report.view import RunView
from stark.results import Result
from stark.search.policies.base import Policy
from stark.search.policies.recorded import Recorded
from stark.store import Store


@dataclass(frozen=True)
class Work:
    """A run with what works on it."""

    run: Run
    replies: Replies
    executor: Executor
    policy: Policy | None = None


async def worked(
    work: Work, store: Store, on_event: OnEvent, within: Ledger | None, close: bool
) -> Result:
    """Work on the run; the result is read from the store."""
    run = work.run
    try:
        expected = None
        if isinstance(work.replies, LiveReplies):
            left = run.config.budget.attempts - len(store.selections(run.id))
            expected = estimate(run.config, work.replies.price, left)
        on_event(Prepared(run, expected))
        await work_on(run, store, work.executor, work.replies, on_event, within, work.policy)
    finally:
        if close:
            await work.executor.close()
    return Result(RunView.of_store(store, run.id))


def live_replies(run: Run, unpriced: bool, within: Ledger | None) -> LiveReplies:
    """The run's models, opened. Raises UsageError where a dollar limit could not hold for an unknown price."""
    replies = LiveReplies(run.config.models)
    limited = run.config.budget.dollars is not None
    if limited or (within is not None and within.limits_dollars):
        check_prices(replies, unpriced)
    return replies


def keeps_prices(changes: Mapping[str, Any]) -> bool:
    """Whether the models, their prices and the dollar limit stay as they were accepted at the beginning."""
    return not {"dollars", "price", "model", *ROLE_MODELS} & set(changes)


def check_prices(replies: LiveReplies, unpriced: bool) -> None:
    """Raise UsageError if the price of a model is unknown and that was not accepted (`unpriced`)."""
    if (unknown := replies.unpriced()) and not unpriced:
        raise UsageError(
            f"the price of {' and '.join(unknown)} is unknown, so a dollar limit would not hold: set price, such as "
            "3/15 (dollars per million input and output tokens), or set unpriced to accept that"
        )


def replaying(run: Run, recording: Recording, executor: Executor) -> Work:
    """A run that follows a recording."""
    policy, replies = Recorded(recording.selections), RecordedReplies(recording)
    return Work(run, replies, RecordedCompiler(executor, recording), policy)


def recording_for(path: Path, problem: Problem | None) -> Recording:
    """The recording to start from, with its problem's text."""
    recording = read_recording(path)
    if recording.left_out is not None:
        if problem is None:
            raise RecordingError(
                f"the recording leaves out the text of {recording.run.problem.name}; name its file too"
            )
        return recording.with_problem(problem)
    if problem is not None and problem.digest != recording.run.problem.digest:
        raise RecordingError(
            f"the recording is of {recording.run.problem.name}, whose text differs from the problem {problem.name}; "
            "leave the problem out to replay it"
        )
    return recording


def recording_of(path: Path, run: Run) -> Recording:
    """The recording that a replay goes on with."""
    recording = read_recording(path)
    if recording.left_out == run.problem.digest:
        recording = recording.with_problem(run.problem)
    if recording.run.problem.digest != run.problem.digest:
        raise RecordingError(
            f"{path} is a recording of {recording.run.problem.name}, and run {run.id} follows another; name the file "
            "that it started with"
        )
    return recording


def refuse_less_than_used(store: Store, run: Run, changes: Mapping[str, Any]) -> None:
    """Raise UsageError for a new limit below what the run has used already."""
    spent = sum(store.spent(run.id).get(run.id, {}).values(), Spent())
    used = {
        "attempts": len(store.selections(run.id)),
        "tokens": spent.tokens,
        "dollars": spent.dollars,
        "minutes": store.elapsed_s(run.id) / 60,
    }
    for name, limit in changes.items():
        if name in used and limit is not None and limit < used[name]:
            raise UsageError(
                f"a limit of {limit:,} {name} is less than the {round(used[name], 6):,} that run {run.id} has used; limits "
                "count from its beginning, so give a larger one"
            )
