"""The Python API: what `import stark` offers. The command line calls these functions, too.

Options are the fields of `stark.options.RunOptions`, by name: `model`, `dollars`, `attempts`, `strategy`, …
Errors are `stark.StarkError`s with one sentence that says what to do.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from stark.bench.grid import enter, lay_out
from stark.bench.report import Report, make_report
from stark.bench.running import BenchEvent, BenchSession, OnBenchEvent, to_do
from stark.bench.suite import Suite, folders
from stark.configuration import (
    ROLE_MODELS,
    configure,
    limits_and_tools,
    new_run,
    reconfigured,
    replayed_run,
    without_unused_models,
)
from stark.core.bench import Bench
from stark.core.errors import RecordingError, UsageError
from stark.core.evaluation import Effort
from stark.core.problem import Problem
from stark.core.run import Run
from stark.core.usage import Budget, Spent
from stark.correspondence import LiveReplies, ModelPool, Replies
from stark.estimate import estimate
from stark.evaluating import Judged, Written, evaluate_candidates, read_candidate
from stark.evaluator.executors import Executor, open_executor
from stark.events import Notice, OnEvent, Prepared, ignore
from stark.ledger import Ledger
from stark.loop import check_compiler, work_on
from stark.options import checked_options, options_text
from stark.problems import load
from stark.recording import RecordedCompiler, RecordedReplies, Recording, read_recording
from stark.report.view import RunView
from stark.results import Kernel, Result
from stark.search.policies.base import Policy
from stark.search.policies.recorded import Recorded
from stark.store import RunSummary, Store

STORE = "sqlite:///.stark/stark.db"
"""The default store: a file in the working folder."""

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


def _lists_options(function: Function) -> Function:
    """Append the options to the docstring, for `help`."""
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{options_text()}"
    return function


def _waits_for(awaited: Callable[..., Any]) -> Callable[[Function], Function]:
    """Give a function the signature and, after its own docstring, the explanations of the one that it waits for."""

    def explain(function: Function) -> Function:
        _, _, explained = inspect.cleandoc(awaited.__doc__ or "").partition("\n\n")
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{explained}"
        function.__signature__ = inspect.signature(awaited)  # type: ignore[attr-defined]
        return function

    return explain


@_lists_options
async def aoptimize(
    problem: Problem | str | Path | None = None,
    *,
    store: str = STORE,
    within: Ledger | None = None,
    replay: str | Path | None = None,
    judge: Executor | None = None,
    on_event: OnEvent = ignore,
    **options: Any,
) -> Result:
    """Search for a faster kernel for a problem; what `optimize` waits for.

    Args:
        problem: A `stark.Problem`, or the path of a KernelBench-style file: `Model`, `get_inputs`, `get_init_inputs`.
        store: A SQLAlchemy URL of the store that keeps the run, SQLite or PostgreSQL.
        within: A budget that several runs share. When it is reached, this run stops without a final check and can be
            resumed.
        replay: The path of a recording. Its selections and replies are followed; builds, checks and timings are live.
            `attempts` may be fewer than recorded; of the other options, only those of the judge apply.
        judge: An open executor that several runs share, instead of the option `executor`. The caller closes it. Set
            `language` too if its device is not one of this machine.
        on_event: Called in the event loop with every `stark.events.Event`.
        options: See below.

    Returns:
        The stored run, once a limit is reached and the fastest kernels have passed or failed their final check.

    Raises:
        UsageError: An option or the problem cannot be used.
        ModelError: A model refuses every question, or stays unreachable; the run can be resumed.
        MachineError: There is no judge, or the store cannot be written.

    Example:
        ```python
        results = await asyncio.gather(*(stark.aoptimize(path, model="ollama:qwen3") for path in paths))
        ```
    """
    asked = checked_options(options)
    loaded = load(str(problem)) if isinstance(problem, str | Path) else problem
    recording = None if replay is None else _recording(Path(replay), loaded)
    if loaded is None and recording is None:
        raise UsageError("name a problem: a file with Model, get_inputs and get_init_inputs")
    executor = judge or open_executor(
        asked.executor, *limits_and_tools(asked), lambda text: on_event(Notice(text))
    )
    with Store.open(store) as opened:
        taken = {summary.id for summary in opened.summaries()}
        if recording is not None:
            work = _replaying(replayed_run(recording, asked, taken), recording, executor)
        else:
            assert loaded is not None
            run = new_run(loaded, configure(asked), taken)
            work = _Work(run, _live(run, asked.unpriced, within), executor)
        return await _worked(work, opened, on_event, within, close=judge is None)


@_waits_for(aoptimize)
def optimize(problem: Problem | str | Path | None = None, **options: Any) -> Result:
    """Search for a faster kernel for a problem until a limit is reached.

    ```python
    result = stark.optimize("my_problem.py", model="anthropic:claude-sonnet-4-5", dollars=5)
    print(result.speedup)
    result.kernel.save("my_kernel.py")
    ```
    """
    return _run(aoptimize(problem, **options))


async def aresume(
    run_id: str = "last",
    *,
    store: str = STORE,
    within: Ledger | None = None,
    replay: str | Path | None = None,
    judge: Executor | None = None,
    on_event: OnEvent = ignore,
    **options: Any,
) -> Result:
    """Go on with a run; what `resume` waits for.

    Args:
        run_id: A run's id, the beginning of one, or `last`.
        store: As in `aoptimize`.
        within: As in `aoptimize`.
        replay: The recording that the run follows, if it began with one.
        judge: As in `aoptimize`.
        on_event: As in `aoptimize`.
        options: Options of `aoptimize` to change, except `strategy`, `language`, `seed` and `start`. They are stored
            with the run.

    Returns:
        The stored run.

    Raises:
        UsageError: There is no such run, or an option cannot be changed so.
        StoreError: The store cannot be used, or another process works on the run.
        ModelError, MachineError: As in `aoptimize`.
    """
    unpriced = bool(options.pop("unpriced", False)) or (within is None and _keeps_prices(options))
    with Store.open(store, create=False) as opened:
        stored = opened.run(run_id)
        run = reconfigured(stored, options)
        config = run.config
        executor = judge or open_executor(
            config.executor, config.limits, config.tools, lambda text: on_event(Notice(text))
        )
        if run.is_replay:
            if replay is None:
                raise UsageError(f"run {run.id} follows a recording; name the recording to go on")
            work = _replaying(run, _recording_of(Path(replay), run), executor)
        elif replay is not None:
            raise UsageError(f"run {run.id} asks live models and follows no recording")
        else:
            work = _Work(run, _live(run, unpriced, within), executor)
        _refuse_less_than_used(opened, run, options)
        with opened.exclusive(run.id):  # a run that is being worked on keeps its configuration
            opened.reconfigure(run)
        return await _worked(work, opened, on_event, within, close=judge is None)


@_waits_for(aresume)
def resume(run_id: str = "last", **options: Any) -> Result:
    """Finish a run that was interrupted, or spend a larger budget. Limits count from the beginning of the run.

    ```python
    result = stark.resume("softmax-12ab", attempts=60)
    ```
    """
    return _run(aresume(run_id, **options))


async def aevaluate(
    problem: Problem | str | Path,
    *candidates: str | Path | Kernel,
    effort: Effort = "promote",
    judge: Executor | None = None,
    **options: Any,
) -> list[Judged]:
    """Judge candidates that exist already; what `evaluate` waits for.

    Args:
        problem: As in `aoptimize`.
        candidates: Paths of files that define `ModelNew`, or kernels of earlier runs. A file that is no candidate is
            `unusable`, and does not keep the others from being judged.
        effort: `promote` checks everything and measures against `torch.compile` too; `search` is what a search does
            with each attempt.
        judge: As in `aoptimize`.
        options: `language`, `executor`, `build_s`, `memory_gb`, `counters` and `sanitizer` of `aoptimize`.

    Returns:
        One entry per candidate, in their order: `judged.evaluation.status`, and for a correct candidate
        `judged.evaluation.latency_ms` and `judged.evaluation.speedup_vs("eager")` (or `"compile"`).

    Raises:
        UsageError: An option or the problem cannot be used.
        MachineError: There is no judge.
    """
    asked = checked_options(options)
    loaded = load(str(problem)) if isinstance(problem, str | Path) else problem
    written = [
        Written(file=f"attempt {each.attempt}", source=each.source, language=each.language)
        if isinstance(each, Kernel)
        else read_candidate(Path(each), asked.language)
        for each in candidates
    ]
    executor = judge or open_executor(asked.executor, *limits_and_tools(asked))
    try:
        _, judged = await evaluate_candidates(loaded, written, executor, effort)
    finally:
        if judge is None:
            await executor.close()
    return judged


@_waits_for(aevaluate)
def evaluate(
    problem: Problem | str | Path, *candidates: str | Path | Kernel, **options: Any
) -> list[Judged]:
    """Check whether candidates that exist already are correct, and measure how fast they are.

    ```python
    [judged] = stark.evaluate("my_problem.py", "my_kernel.py")
    print(judged.evaluation.status)
    ```
    """
    return _run(aevaluate(problem, *candidates, **options))


def runs(store: str = STORE) -> list[RunSummary]:
    """Every run in the store, the newest first.

    ```python
    for run in stark.runs():
        print(run.id, run.problem, run.latency_ms, run.speedup)
    ```

    A store that does not exist holds no runs. Raises StoreError if it cannot be read.
    """
    with Store.open(store, create=False) as opened:
        return opened.summaries()


def load_run(run_id: str | Path = "last", store: str = STORE) -> Result:
    """A stored run, by its id, the beginning of one, or `last`; or from the path of a recording (`.json`, `.json.gz`).

    ```python
    stark.load_run("last").kernel.save("kernel.py")
    ```

    Raises UsageError if there is no such run or several match, RecordingError for a file that is not a recording, and
    StoreError if the store cannot be read.
    """
    run_id = str(run_id)
    if run_id.endswith((".json", ".json.gz")):
        return Result(RunView.of_recording(read_recording(Path(run_id))))
    with Store.open(store, create=False) as opened:
        return Result(RunView.of_store(opened, run_id))


def _unwatched(event: BenchEvent) -> None:
    """The handler of a bench that nobody watches."""


async def abench(
    problems: Suite | Sequence[str | Path],
    *,
    strategies: Sequence[str] = ("stark",),
    seeds: int = 1,
    name: str | None = None,
    total: Mapping[str, float] | None = None,
    parallel: int = 4,
    model_slots: int | None = None,
    store: str = STORE,
    judge: Executor | None = None,
    on_event: OnBenchEvent = _unwatched,
    **options: Any,
) -> Report:
    """Compare strategies on many problems; what `bench` waits for.

    Args:
        problems: A `Suite`, or folders and files of problems.
        strategies: Names as in `RunOptions.strategy`; the first is compared with each of the others.
        seeds: Runs of each problem and strategy, with seeds 1, 2, …
        name: Of the bench; by default made from what it consists of.
        total: Limits of the whole bench, by the names of `stark.Budget`; minutes are those of one session.
        parallel: Runs worked on at once.
        model_slots: Questions to models at once; no limit by default.
        store: As in `aoptimize`.
        judge: As in `aoptimize`.
        on_event: Called with every `stark.bench.running.BenchEvent`.
        options: Options of `aoptimize` for every run, except that `in_each` is the number of its attempts in flight.

    Returns:
        The report: `summaries` by level and strategy, `differences` between strategies, and `results` of all runs.

    Raises:
        UsageError: An option or a problem cannot be used, or another bench has the name.
        ModelError: A model refuses every question, or all models are unreachable; call again to go on.
        MachineError: There is no judge, or the store cannot be written.
    """
    suite = problems if isinstance(problems, Suite) else folders([Path(one) for one in problems])
    options["parallel"] = options.pop("in_each", 1)
    if not strategies:
        raise UsageError("a bench needs at least one strategy")
    used = without_unused_models(options, strategies)
    if unused := [name for name in options if name not in used]:
        raise UsageError(
            f"no strategy of the bench has the role of {' and '.join(unused)}, so leave out its model"
        )
    configs = {
        one: configure(
            checked_options(without_unused_models(options, [one]) | {"strategy": one, "seed": 1})
        )
        for one in strategies
    }
    laid_out, its_runs = lay_out(suite, range(1, seeds + 1), configs, name)
    laid_out = laid_out.model_copy(update={"budget": changed_budget(laid_out.budget, total or {})})
    check_compiler(its_runs[0])  # all have one language and one start
    pool = ModelPool(model_slots)
    for run in its_runs[: len(configs)]:
        LiveReplies(run.config.models, pool)  # a missing key is reported before anything is stored
    unpriced = bool(options.get("unpriced", False))
    with Store.open(store) as opened:
        entered = enter(opened, laid_out, its_runs)
        return await _bench_worked(entered, opened, parallel, pool, unpriced, on_event, judge)


@_waits_for(abench)
def bench(
    problems: Suite | Sequence[str | Path],
    *,
    strategies: Sequence[str] = ("stark",),
    seeds: int = 1,
    **options: Any,
) -> Report:
    """Run every problem with every strategy and seed, and compare the strategies.

    Called again, a bench goes on with its runs. Two benches in one store share the runs that they have in common.

    ```python
    report = stark.bench(["problems/"], strategies=["stark", "sampling"], model="ollama:qwen3", attempts=10)
    ```
    """
    return _run(abench(problems, strategies=strategies, seeds=seeds, **options))


async def resume_bench(
    name: str = "last",
    *,
    total: Mapping[str, float] | None = None,
    parallel: int = 4,
    model_slots: int | None = None,
    store: str = STORE,
    judge: Executor | None = None,
    on_event: OnBenchEvent = _unwatched,
    **options: Any,
) -> Report:
    """Go on with a bench: its unfinished runs, and again those whose problems were refused.

    `options` change those of every such run, such as `model`; the others are those of `abench`.
    """
    unpriced = bool(options.pop("unpriced", False)) or _keeps_prices({**options, **(total or {})})
    if "in_each" in options:
        options["parallel"] = options.pop("in_each")
    with Store.open(store, create=False) as opened:
        found = opened.bench(name)
        found = found.model_copy(update={"budget": changed_budget(found.budget, total or {})})
        opened.set_bench_budget(found.name, found.budget)
        if options:
            for cell in to_do(opened, found):
                with opened.exclusive(cell.run_id):
                    opened.reconfigure(reconfigured(opened.run(cell.run_id), options))
        return await _bench_worked(
            found, opened, parallel, ModelPool(model_slots), unpriced, on_event, judge
        )


async def _bench_worked(
    bench: Bench,
    store: Store,
    parallel: int,
    pool: ModelPool,
    unpriced: bool,
    on_event: OnBenchEvent,
    judge: Executor | None,
) -> Report:
    """Work on a bench whose runs are stored."""
    waiting = {cell.strategy: cell.run_id for cell in reversed(bench.cells)}
    some = [store.run(run_id) for run_id in waiting.values()]
    for run in some:
        replies = LiveReplies(run.config.models, pool)
        if bench.budget.dollars or run.config.budget.dollars:
            _check_prices(replies, unpriced)
    first = some[0].config  # all runs are judged alike
    executor = (
        open_executor(first.executor, first.limits, first.tools)
        if judge is None
        else _LeftOpen(judge)
    )
    await BenchSession(bench, store, executor, pool, on_event, parallel).work()
    return make_report(store, bench)


class _LeftOpen:
    """A judge that is shared with others, so that a bench does not close it."""

    def __init__(self, judge: Executor) -> None:
        self.describe, self.evaluate, self.compiled = judge.describe, judge.evaluate, judge.compiled

    async def close(self) -> None:
        """The caller closes the judge."""


def changed_budget(budget: Budget, changes: Mapping[str, float | None]) -> Budget:
    """The budget with the given limits changed. Raises UsageError for a wrong one."""
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return Budget(**budget.model_dump() | given)
    except ValidationError as error:
        name = error.errors()[0]["loc"][0]
        raise UsageError(
            f"the limit on {name} of the whole bench should be greater than 0"
        ) from error


@dataclass(frozen=True)
class _Work:
    """A run with what works on it."""

    run: Run
    replies: Replies
    executor: Executor
    policy: Policy | None = None


async def _worked(
    work: _Work, store: Store, on_event: OnEvent, within: Ledger | None, close: bool
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


def _live(run: Run, unpriced: bool, within: Ledger | None) -> LiveReplies:
    """The run's models, opened. Raises UsageError where a dollar limit could not hold for an unknown price."""
    replies = LiveReplies(run.config.models)
    limited = run.config.budget.dollars is not None
    if limited or (within is not None and within.limits_dollars):
        _check_prices(replies, unpriced)
    return replies


def _keeps_prices(changes: Mapping[str, Any]) -> bool:
    """Whether the models, their prices and the dollar limit stay as they were accepted at the beginning."""
    return not {"dollars", "price", "model", *ROLE_MODELS} & set(changes)


def _check_prices(replies: LiveReplies, unpriced: bool) -> None:
    if (unknown := replies.unpriced()) and not unpriced:
        raise UsageError(
            f"the price of {' and '.join(unknown)} is unknown, so a dollar limit would not hold: set price, such as "
            "3/15 (dollars per million input and output tokens), or set unpriced to accept that"
        )


def _replaying(run: Run, recording: Recording, executor: Executor) -> _Work:
    policy, replies = Recorded(recording.selections), RecordedReplies(recording)
    return _Work(run, replies, RecordedCompiler(executor, recording), policy)


def _recording(path: Path, problem: Problem | None) -> Recording:
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


def _recording_of(path: Path, run: Run) -> Recording:
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


def _refuse_less_than_used(store: Store, run: Run, changes: Mapping[str, Any]) -> None:
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
                f"a limit of {limit:g} {name} is less than the {used[name]:.7g} that run {run.id} has used; limits "
                "count from its beginning, so give a larger one"
            )


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. In a notebook, whose event loop runs already, `await` the `a…` function instead."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise UsageError(
        "an event loop is running already, as in a notebook: write `await stark.aoptimize(…)` (or aresume, aevaluate, "
        "abench) instead"
    )
