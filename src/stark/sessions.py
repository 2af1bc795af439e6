"""Opens a run's models, judge and policy, and works on the run: what `optimize` and `resume` share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stark.configuration import ROLE_MODELS
from stark.core.errors import OptionError, RecordingError, UsageError
from stark.core.problem import Problem
from stark.core.run import Run, RunConfig
from stark.core.usage import Spent
from stark.correspondence import LiveReplies, ModelPool, Replies
from stark.estimate import estimate
from stark.evaluator.executors import Executor, open_executor
from stark.events import Notice, OnEvent, Prepared
from stark.ledger import Ledger
from stark.loop import work_on
from stark.recorded import RecordedReplies, Recording, read_recording
from stark.results import Result
from stark.search.policies.recorded import Recorded
from stark.store import Store


async def worked(
    run: Run,
    store: Store,
    recording: Recording | None,
    judge: Executor | None,
    unpriced: bool,
    within: Ledger | None,
    on_event: OnEvent,
) -> Result:
    """Work on the run, with live models or with the recording that it replays; returns the stored result.

    `judge` replaces the run's own executor and is not closed.
    """
    config = run.config
    executor = judge or open_executor(
        config.executor,
        config.limits,
        config.tools,
        lambda text: on_event(Notice(text)),
        config.device_class,
    )
    replies: Replies
    try:
        if recording is not None:
            replies, expected = RecordedReplies(recording), None
            policy = Recorded(recording.selections)
        else:
            replies, policy = live_replies(config, unpriced, within), None
            left = config.budget.attempts - store.attempts(run.id)
            cases = run.problem.weighing.weights if run.problem.weighing else [None]
            expected = estimate(config, replies.price, left, len(cases))
        on_event(Prepared(run, expected))
        await work_on(run, store, executor, replies, on_event, within, policy)
    finally:
        if judge is None:
            await executor.close()
    return await store.retried(Result.of_store, store, run.id)


def live_replies(
    config: RunConfig, unpriced: bool, within: Ledger | None, pool: ModelPool | None = None
) -> LiveReplies:
    """Open the run's models.

    Raises UsageError if there is a dollar limit and a model's price is unknown, unless `unpriced` accepts that.
    """
    replies = LiveReplies(config.models, pool)
    unknown = sorted({replies.model(role) for role in config.models if not replies.price(role)})
    if unknown and not unpriced and Ledger(config.budget, within).limits_dollars:
        raise OptionError(
            f"the price of {' and '.join(unknown)} is unknown, so a dollar limit would not hold",
            "set {price}, such as 3/15 (dollars per million input and output tokens), or set {unpriced} to accept that",
        )
    return replies


def keeps_prices(changes: Mapping[str, Any]) -> bool:
    """Whether the changes leave the models, their prices and the dollar limit as they were accepted before."""
    return not {"dollars", "price", "model", *ROLE_MODELS} & set(changes)


def recording_for(path: Path, problem: Problem | None) -> Recording:
    """Read the recording to replay, with its problem's text.

    Raises RecordingError if another problem was recorded, or if the text is left out and `problem` is None.
    """
    recording = read_recording(path)
    name = recording.run.problem.name
    if problem is None:
        if recording.left_out is not None:
            raise RecordingError(
                f"the recording leaves out the text of {name}; name that problem's file too"
            )
        return recording
    if (recording.left_out or recording.run.problem.digest) != problem.digest:
        raise RecordingError(
            f"{path} is a recording of {name}, whose text differs from the problem {problem.name}; name a "
            f"recording of {problem.name}"
        )
    return recording if recording.left_out is None else recording.with_problem(problem)


def refuse_less_than_used(store: Store, run: Run, changes: Mapping[str, Any]) -> None:
    """Raise UsageError for a new limit below what the run has used already."""
    spent = sum(store.spent(run.id).get(run.id, {}).values(), Spent())
    used = {
        "attempts": store.attempts(run.id),
        "tokens": spent.tokens,
        "dollars": spent.dollars,
        "minutes": store.elapsed_s(run.id) / 60,
    }
    for name, limit in changes.items():
        if name in used and limit is not None and limit < used[name]:
            raise UsageError(
                f"a limit of {limit:,} {name} is less than the {round(used[name], 6):,} that run {run.id} has used; limits "
                "count from the beginning of the run, so give a larger limit"
            )
