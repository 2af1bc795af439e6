"""The Python API: what `import stark` offers. The command line calls these functions, too.

Options are the fields of `stark.options.RunOptions`, by name: `model`, `dollars`, `attempts`, `strategy`, …
Errors are `stark.StarkError`s with one sentence that says what to do.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from stark.benches.entry import abench
from stark.benches.report import Report
from stark.benches.suite import Suite
from stark.configuration import (
    asked_for,
    configure,
    new_run,
    open_judge,
    reconfigured,
    replayed_run,
)
from stark.core.errors import UsageError
from stark.core.evaluation import Effort
from stark.core.problem import Problem
from stark.evaluating import Judged, Written, evaluate_candidates, read_candidate
from stark.evaluator.executors import Executor, open_executor
from stark.events import OnEvent, ignore
from stark.explain.run import mode_line
from stark.ledger import Ledger
from stark.options import checked_options, options_text
from stark.problems import load
from stark.recorded import read_recording
from stark.report.progress import printing
from stark.results import Kernel, Result
from stark.sessions import (
    keeps_prices,
    live_replies,
    recording_for,
    refuse_less_than_used,
    worked,
)
from stark.store import STORE, RunSummary, Store

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


def waits_for(awaited: Callable[..., Any]) -> Callable[[Function], Function]:
    """Copy the signature of `awaited`, and append the docstring of `awaited` without its first paragraph."""

    def explain(function: Function) -> Function:
        _, _, explained = inspect.cleandoc(awaited.__doc__ or "").partition("\n\n")
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{explained}"
        function.__signature__ = inspect.signature(awaited)  # type: ignore[attr-defined]
        return function

    return explain


async def aoptimize(
    problem: Problem | str | Path | None = None,
    *,
    store: str = STORE,
    within: Ledger | None = None,
    replay: str | Path | None = None,
    judge: Executor | None = None,
    on_event: OnEvent = ignore,
    progress: bool = False,
    **options: Any,
) -> Result:
    """Search for a faster kernel for a problem; the async form of `optimize`.

    Args:
        problem: A `stark.Problem`, or the path of a KernelBench-style file, which defines `Model`, `get_inputs`
            and `get_init_inputs`. With `CASES`, it has several sets of inputs, each of which is verified and timed.
        store: A SQLAlchemy URL of the store that keeps the run, SQLite or PostgreSQL.
        within: A `stark.Ledger` whose budget several runs share. When that budget is used up, this run stops without a
            final check and can be resumed.
        replay: The path of a recording. The run repeats the recorded selections and replies; builds, checks and timings
            are live. `attempts` may be lower than the number of recorded attempts. Of the other options, only those
            that configure the judge apply.
        judge: An open executor, used instead of the option `executor`. Several runs may share it, and the caller closes
            it. If its device is on another machine, set `language` too, since the default is chosen for this machine.
        on_event: Called in the event loop with every `stark.events.Event`.
        progress: Whether to print a line for each step.
        options: See below.

    Returns:
        The stored run, once a limit is reached and the fastest kernels have passed or failed their final check.

    Raises:
        UsageError: An option or the problem cannot be used.
        ModelError: A model refuses every question, or stays unreachable; the run can be resumed.
        MachineError: No judge can be started, or the store cannot be written.

    Example:
        ```python
        results = await asyncio.gather(*(stark.aoptimize(path, model="ollama:qwen3") for path in paths))
        ```
    """
    asked = checked_options(options)
    loaded = None if problem is None else _loaded(problem)
    recording = None if replay is None else recording_for(Path(replay), loaded)
    if loaded is None and recording is None:
        raise UsageError("name a problem: a file with Model, get_inputs and get_init_inputs")
    with Store.open(store) as opened:
        taken = {summary.id for summary in opened.summaries()}
        if recording is not None:
            run = replayed_run(recording, asked, taken)
        else:
            assert loaded is not None
            run = new_run(asked_for(loaded, asked), configure(asked), taken)
        on_event = printing(on_event) if progress else on_event
        if on_event is ignore and (mode := mode_line(run.problem)):
            warnings.warn(f"{run.problem.name} was captured in {mode}", stacklevel=2)
        return await worked(run, opened, recording, judge, asked.unpriced, within, on_event)


aoptimize.__doc__ = f"{inspect.cleandoc(aoptimize.__doc__ or '')}\n\n{options_text()}"


@waits_for(aoptimize)
def optimize(problem: Problem | str | Path | None = None, **options: Any) -> Result:
    """Search for a faster kernel for a problem until a limit is reached.

    ```python
    result = stark.optimize("my_problem.py", model="anthropic:claude-sonnet-4-5", dollars=5)
    print(result.speedup)
    result.kernel.save("my_kernel.py")
    ```
    """
    return run_to_end(aoptimize(problem, **options))


async def aresume(
    run_id: str = "last",
    *,
    store: str = STORE,
    within: Ledger | None = None,
    replay: str | Path | None = None,
    judge: Executor | None = None,
    on_event: OnEvent = ignore,
    progress: bool = False,
    **options: Any,
) -> Result:
    """Continue a run; the async form of `resume`.

    Args:
        run_id: A run's id, a unique prefix of an id, or `last`.
        store: As in `aoptimize`.
        within: As in `aoptimize`.
        replay: The path of the recording, if the run is a replay.
        judge: As in `aoptimize`.
        on_event: As in `aoptimize`.
        progress: As in `aoptimize`.
        options: New values for options of `aoptimize`. `strategy`, `language`, `seed`, `precision` and `backward` cannot
            change. New values are stored with the run.

    Returns:
        The stored run.

    Raises:
        UsageError: There is no such run, or an option cannot have this new value.
        StoreError: The store cannot be used, or another process is working on the run.
        ModelError, MachineError: As in `aoptimize`.
    """
    unpriced = bool(options.pop("unpriced", False)) or (within is None and keeps_prices(options))
    on_event = printing(on_event) if progress else on_event
    with Store.open(store, create=False) as opened:
        run = reconfigured(opened.run(run_id), options)
        if run.is_replay and replay is None:
            raise UsageError(
                f"run {run.id} replays a recording; set replay to the recording's path to resume it"
            )
        if replay is not None and not run.is_replay:
            raise UsageError(f"run {run.id} asks live models and is not a replay; leave out replay")
        recording = None if replay is None else recording_for(Path(replay), run.problem)
        # If the executor or a model cannot be opened, the stored run stays unchanged.
        if judge is None:
            open_executor(run.config.executor)
        if recording is None:
            live_replies(run.config, unpriced, within)
        with opened.exclusive(run.id):  # no other process may be working on the run
            opened.lose_calls(run.id)
            refuse_less_than_used(opened, run, options)
            opened.reconfigure(run)
        return await worked(run, opened, recording, judge, unpriced, within, on_event)


@waits_for(aresume)
def resume(run_id: str = "last", **options: Any) -> Result:
    """Finish an interrupted run, or continue a run with a larger budget. Limits count from the beginning of the run.

    ```python
    result = stark.resume("softmax-12ab", attempts=60)
    ```
    """
    return run_to_end(aresume(run_id, **options))


async def aevaluate(
    problem: Problem | str | Path,
    *candidates: str | Path | Kernel,
    effort: Effort = "promote",
    judge: Executor | None = None,
    **options: Any,
) -> list[Judged]:
    """Judge existing candidates; the async form of `evaluate`.

    Args:
        problem: As in `aoptimize`.
        candidates: Paths of files that define `ModelNew`, or kernels of earlier runs. A file that is not a
            candidate gets the status `unusable`; the other files are still judged.
        effort: `promote` runs all checks and also measures against `torch.compile`; `search` runs only the quicker
            checks that each attempt gets during a search.
        judge: As in `aoptimize`.
        options: `language`, `backward`, `executor`, `precision`, `build_s`, `memory_gb`, `counters` and `sanitizer` of
            `aoptimize`.

    Returns:
        One entry per candidate, in the order given. Each entry has `evaluation.status` and, for a correct candidate,
        `evaluation.latency_ms` and `evaluation.speedup_vs("eager")` (or `"compile"`). For a problem with `CASES`,
        `evaluation.cases` has the evaluation of each case, and the speedup is the problem's objective.

    Raises:
        UsageError: An option or the problem cannot be used.
        MachineError: No judge can be started.
    """
    asked = checked_options(options)
    loaded = asked_for(_loaded(problem), asked)
    written = [
        Written(file=f"attempt {each.attempt}", source=each.source, languages=(each.language,))
        if isinstance(each, Kernel)
        else read_candidate(Path(each), asked.language)
        for each in candidates
    ]
    executor = judge or open_judge(asked)
    try:
        device = (await executor.describe(loaded)).device
        return await evaluate_candidates(loaded, written, executor, effort, device)
    finally:
        if judge is None:
            await executor.close()


@waits_for(aevaluate)
def evaluate(
    problem: Problem | str | Path, *candidates: str | Path | Kernel, **options: Any
) -> list[Judged]:
    """Check whether existing candidates are correct, and measure how fast they are.

    ```python
    [judged] = stark.evaluate("my_problem.py", "my_kernel.py")
    print(judged.evaluation.status)
    ```
    """
    return run_to_end(aevaluate(problem, *candidates, **options))


def runs(store: str = STORE) -> list[RunSummary]:
    """Every run in the store, the newest first.

    ```python
    for run in stark.runs():
        print(run.id, run.problem, run.latency_ms, run.speedup)
    ```

    If the store does not exist, the list is empty. Raises StoreError if the store cannot be read.
    """
    with Store.open(store, create=False) as opened:
        return opened.summaries()


def load_run(run_id: str | Path = "last", store: str = STORE) -> Result:
    """Load a stored run by its id, a unique prefix of its id or `last`, or a recorded run by the recording's path.

    ```python
    stark.load_run("last").kernel.save("kernel.py")
    ```

    The path of a recording ends in `.json` or `.json.gz`. Raises UsageError if no run or more than one matches,
    RecordingError for a file that is not a recording, and StoreError if the store cannot be read.
    """
    run_id = str(run_id)
    if run_id.endswith((".json", ".json.gz")):
        return Result.of_recording(read_recording(Path(run_id)))
    with Store.open(store, create=False) as opened:
        return Result.of_store(opened, run_id)


@waits_for(abench)
def bench(
    problems: Suite | Sequence[str | Path],
    *,
    strategies: Sequence[str] = ("stark",),
    seeds: int = 1,
    **options: Any,
) -> Report:
    """Run every problem with every strategy and seed, and compare the strategies.

    Repeating the same call continues the bench. A run that belongs to two benches in one store is
    made only once.

    ```python
    report = stark.bench(["problems/"], strategies=["stark", "sampling"], model="ollama:qwen3", attempts=10)
    ```
    """
    return run_to_end(abench(problems, strategies=strategies, seeds=seeds, **options))


def _loaded(problem: Problem | str | Path) -> Problem:
    """The problem, read if it is a path. Raises UsageError for anything else, such as a module."""
    if isinstance(problem, str | Path):
        return load(str(problem))
    if not isinstance(problem, Problem):
        raise UsageError(
            f"a {type(problem).__name__} is not a problem; write a module as one with stark.capture(module, calls), or "
            "name a problem file"
        )
    return problem


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. Raises UsageError if an event loop is already running, as in a notebook."""
    if (
        asyncio._get_running_loop() is None
    ):  # the public function raises, which would show in every traceback
        return asyncio.run(work)
    work.close()
    raise UsageError(
        "an event loop is running already, as in a notebook: write `await stark.aoptimize(…)` (or aresume, aevaluate, "
        "abench) instead"
    )
