"""`abench` and `resume_bench`: run a whole bench and return its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stark.benches.grid import enter, lay_out
from stark.benches.report import Report, make_report
from stark.benches.running import BenchSession, OnBenchEvent, to_do
from stark.benches.suite import Suite, folders
from stark.configuration import configure, reconfigured, without_unused_models
from stark.core.bench import Bench
from stark.core.errors import UsageError
from stark.core.run import RunConfig
from stark.core.usage import Budget
from stark.correspondence import ModelPool
from stark.evaluator.executors import Executor, open_executor
from stark.events import ignore
from stark.ledger import Ledger
from stark.options import checked_options
from stark.sessions import keeps_prices, live_replies
from stark.store import STORE, Store


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
    on_event: OnBenchEvent = ignore,
    **options: Any,
) -> Report:
    """Compare strategies on many problems; the async form of `bench`.

    Args:
        problems: A `Suite`, or folders and files of problems.
        strategies: Names as in `RunOptions.strategy`; the first is compared with each of the others.
        seeds: Number of runs per problem and strategy; the runs have the seeds 1, 2, …
        name: Name of the bench; by default derived from the name of the suite and from the runs.
        total: Limits of the whole bench, keyed by the fields of `stark.Budget`; `minutes` counts from this call.
        parallel: Maximum number of concurrent runs.
        model_slots: Maximum number of concurrent model calls; no limit by default.
        store: As in `aoptimize`.
        judge: As in `aoptimize`.
        on_event: Called with every `stark.benches.running.BenchEvent`.
        options: Options of `aoptimize`, which apply to every run. Since `parallel` counts runs here, the maximum number
            of attempts in flight per run (`parallel` of `aoptimize`) is called `in_each`.

    Returns:
        The report: `summaries` by level and strategy, `differences` between strategies, and `results` of all runs.

    Raises:
        UsageError: An option or a problem cannot be used, or the name belongs to another bench.
        ModelError: A model rejects every prompt, or models are unreachable; call again to continue the bench.
        MachineError: The judge is unavailable, or the store cannot be written.
    """
    suite = problems if isinstance(problems, Suite) else folders([Path(one) for one in problems])
    suite = suite.with_backward() if options.get("backward") else suite
    options["parallel"] = options.pop("in_each", 1)
    if not strategies:
        raise UsageError("a bench needs at least one strategy")
    unused = options.keys() - without_unused_models(options, strategies)  # refused by `configure`
    configs = {}
    for one in strategies:
        own = without_unused_models(options, [one], unused)
        configs[one] = configure(checked_options(own | {"strategy": one, "seed": 1}))
    if seeds < 1 or parallel < 1 or (model_slots is not None and model_slots < 1):
        raise UsageError("seeds, parallel and model_slots of a bench should be at least 1")
    if "seed" in options:
        raise UsageError("a bench uses the seeds 1, 2, … up to `seeds`, so leave out `seed`")
    laid_out, its_runs = lay_out(suite, range(1, seeds + 1), configs, name)
    laid_out = _limited(laid_out, total)
    pool = ModelPool(model_slots)
    # A missing key or an unknown price is reported before anything is stored.
    _check_models(configs.values(), laid_out.budget, pool, bool(options.get("unpriced", False)))
    with Store.open(store) as opened:
        entered = enter(opened, laid_out, its_runs)
        return await _bench_worked(entered, opened, parallel, pool, on_event, judge)


async def resume_bench(
    name: str = "last",
    *,
    total: Mapping[str, float] | None = None,
    parallel: int = 4,
    model_slots: int | None = None,
    store: str = STORE,
    judge: Executor | None = None,
    on_event: OnBenchEvent = ignore,
    **options: Any,
) -> Report:
    """Continue a bench: work on its unfinished runs, and retry the runs whose problems were refused.

    `options` (such as `model`) change the options of these runs. The other arguments are those of `abench`.
    """
    unpriced = bool(options.pop("unpriced", False)) or keeps_prices({**options, **(total or {})})
    if "attempts" in options:
        raise UsageError(
            "the number of attempts per run is fixed for each bench; start another bench to change it"
        )
    if "in_each" in options:
        options["parallel"] = options.pop("in_each")
    pool = ModelPool(model_slots)
    with Store.open(store, create=False) as opened:
        found = _limited(opened.bench(name), total)
        stored = [opened.run(cell.run_id) for cell in to_do(opened, found)]
        changed = [reconfigured(run, options) for run in stored] if options else []
        _check_models([run.config for run in changed or stored], found.budget, pool, unpriced)
        opened.change_bench(found)
        for run in changed:
            with opened.exclusive(run.id):
                opened.reconfigure(run)
        return await _bench_worked(found, opened, parallel, pool, on_event, judge)


def _check_models(
    configs: Iterable[RunConfig], budget: Budget, pool: ModelPool, unpriced: bool
) -> None:
    """Open the models of all runs.

    Raises ModelRefused for a missing API key. Raises UsageError if there is a dollar limit and a model's price is
    unknown, unless `unpriced` is true.
    """
    kinds = {tuple(config.models.items()): config for config in configs}
    for config in kinds.values():
        live_replies(config, unpriced, Ledger(budget), pool)


async def _bench_worked(
    bench: Bench,
    store: Store,
    parallel: int,
    pool: ModelPool,
    on_event: OnBenchEvent,
    judge: Executor | None,
) -> Report:
    """Work on a stored bench, and return its report."""
    next_cell = next(iter(to_do(store, bench)), bench.cells[0])
    first = store.run(next_cell.run_id).config  # all remaining runs have the same judge and limits
    executor = judge or open_executor(
        first.executor, first.limits, first.tools, device_class=first.device_class
    )
    try:
        await BenchSession(bench, store, executor, pool, on_event, parallel).work()
    finally:
        if judge is None:
            await executor.close()
    return make_report(store, bench)


def _limited(bench: Bench, total: Mapping[str, float] | None) -> Bench:
    """The bench with the limits in `total` put into its budget. Raises UsageError for an invalid limit."""
    try:
        budget = Budget(**{**bench.budget.model_dump(), **(total or {})})
        return bench.model_copy(update={"budget": budget})
    except ValidationError as error:
        name = error.errors()[0]["loc"][0]
        raise UsageError(
            f"the limit on {name} of the whole bench should be greater than 0"
        ) from error
