"""`stark optimize` and `stark resume`: a new run, or an earlier one taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stark.cli.places import check_file
from stark.cli.requests import (
    Course,
    chosen_stop,
    limits,
    new_run,
    refuse_beside_replay,
    refuse_fleeting,
    refuse_unused_models,
    replayed_run,
)
from stark.cli.session import Session
from stark.cli.settings import Settings
from stark.core.errors import RecordingError, UsageError
from stark.core.judging import Tools
from stark.core.run import Run
from stark.core.usage import Budget, Usage
from stark.evaluator.executors import Executor, open_executor
from stark.explain.run import is_replay
from stark.problems import load
from stark.recording import RecordedCompiler, Recording, read_recording
from stark.replies import LiveReplies, RecordedReplies, Replies
from stark.search.policies.base import Policy
from stark.search.policies.recorded import Recorded
from stark.store import Store


def optimize(
    problem: str | None,
    settings: Settings,
    tools: Tools,
    seed: int | None,
    course: Course,
    replay: Path | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Begin a run and work on it; returns the exit code."""
    if problem is None and replay is None:
        raise UsageError("name a problem: a Python file with Model, get_inputs and get_init_inputs")
    if output is not None:
        check_file(output)
    refuse_fleeting(settings.store)
    executor = open_executor(settings.executor, limits(settings), tools)
    loaded = None if problem is None else load(problem, settings.kernelbench)
    recording = None if replay is None else read_recording(replay)
    with Store.open(settings.store) as store:
        taken = {summary.id for summary in store.summaries()}
        replies: Replies
        policy: Policy | None = None
        if recording is not None:
            run = replayed_run(recording, loaded, settings, taken, tools)
            policy, replies = following(recording)
            executor = RecordedCompiler(executor, recording)
        else:
            assert loaded is not None
            run = new_run(loaded, settings, seed, taken, course, tools)
            replies = LiveReplies.open(run.config.models)
        return Session(store, settings.store, as_json).work(run, policy, executor, replies, output)


def resume(
    run_id: str,
    settings: Settings,
    tools: Tools,
    budget: Mapping[str, float | None],
    stop: str | None,
    models: Mapping[str, str | None],
    replay: Path | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Go on with a run, with the changed limits and models if there are any; returns the exit code.

    `stop`, `models`, limits of candidates that are set, and `tools` beside the run's own, are for this session; the run as it
    is stored keeps its own.
    """
    if output is not None:
        check_file(output)
    with Store.open(settings.store) as store:
        run = _with_models(store.run(run_id), models)
        executor = open_executor(
            run.config.executor, limits(settings, run.config.limits), run.config.tools | tools
        )
        policy, replies, executor = _taken_up(run, replay, executor)
        changed = {name: value for name, value in budget.items() if value is not None}
        _refuse_less_than_used(store, run.id, changed)
        run = with_config(run, budget=Budget(**run.config.budget.model_dump() | changed))
        if stop is not None:
            run = with_config(run, stop=chosen_stop(stop))
        with store.exclusive(run.id):  # a run that is being worked on keeps its budget
            store.set_budget(run.id, run.config.budget)
        return Session(store, settings.store, as_json).work(run, policy, executor, replies, output)


def following(recording: Recording) -> tuple[Policy, Replies]:
    """The policy and the replies of a replay: selections and texts are the recording's."""
    replies = RecordedReplies(recording.calls, recording.unusable)
    return Recorded(recording.selections), replies


def _taken_up(
    run: Run, replay: Path | None, executor: Executor
) -> tuple[Policy | None, Replies, Executor]:
    """How an earlier run goes on: a replay only with a recording of its problem, another never."""
    if is_replay(run):
        if replay is None:
            raise UsageError(
                f"run {run.id} follows a recording; go on with `stark resume {run.id} --replay FILE`"
            )
        recording = read_recording(replay)
        if recording.left_out == run.problem.digest:
            recording = recording.with_problem(run.problem)
        if recording.run.problem.digest != run.problem.digest:
            raise RecordingError(
                f"{replay} is a recording of {recording.run.problem.name}, and run {run.id} follows "
                "another; name the file that it began with"
            )
        return *following(recording), RecordedCompiler(executor, recording)
    if replay is not None:
        raise UsageError(
            f"run {run.id} asks live models and follows no recording; leave out --replay"
        )
    return None, LiveReplies.open(run.config.models), executor


def _with_models(run: Run, flags: Mapping[str, str | None]) -> Run:
    """The run with the models that `flags` name for a role or, under `all`, for every role. Raises UsageError for a
    replay, and for a role that the run does not have.
    """
    given = {role: model for role, model in flags.items() if model is not None}
    if is_replay(run):
        refuse_beside_replay("--model" if role == "all" else f"--{role}-model" for role in given)
    refuse_unused_models(
        {role: model for role, model in given.items() if role != "all"}, [run.config.strategy.name]
    )
    models = {
        role: entry.model_copy(update={"model": given.get(role) or given.get("all") or entry.model})
        for role, entry in run.config.models.items()
    }
    return with_config(run, models=models)


def with_config(run: Run, **changes: object) -> Run:
    """The run with parts of its configuration changed."""
    return run.model_copy(update={"config": run.config.model_copy(update=changes)})


def _refuse_less_than_used(store: Store, run_id: str, limits: Mapping[str, float]) -> None:
    """Raise UsageError for a new limit below what the run has used already."""
    told = sum((call.reply.usage.told for call in store.calls(run_id)), Usage())
    used = {
        "attempts": len(store.selections(run_id)),
        "tokens": told.tokens or 0,
        "dollars": told.dollars or 0.0,
        "minutes": store.elapsed_s(run_id) / 60,
    }
    for name, limit in limits.items():
        if limit < used[name]:
            raise UsageError(
                f"--{name} {limit:g} is less than the {used[name]:.7g} {name} that run {run_id} has used; limits count "
                "from its beginning, so give a larger one"
            )
