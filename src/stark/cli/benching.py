"""`stark bench`: from what a person wrote to a bench that is worked on, and its report."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from stark.bench.document import report_document
from stark.bench.files import write_report
from stark.bench.grid import Terms, enter, lay_out
from stark.bench.report import Report, make_report
from stark.bench.running import BenchSession, unfinished
from stark.bench.shared import ModelDoor
from stark.bench.suite import Suite
from stark.bench.tables import Sheet, head, sheets
from stark.cli import consoles
from stark.cli.bench_live import open_bench_progress
from stark.cli.interrupt import run_interruptibly
from stark.cli.places import check_folder
from stark.cli.requests import (
    Course,
    beside,
    chosen_language,
    limits,
    refuse_fleeting,
    role_models,
)
from stark.cli.settings import Settings
from stark.core.bench import Bench
from stark.core.errors import ModelRefused, StarkError, UsageError
from stark.core.judging import Tools
from stark.core.usage import Budget
from stark.evaluator.executors import Executor, open_executor
from stark.explain.numbers import counted
from stark.optimize import check_compiler
from stark.store import Store, without_password
from stark.strategies import strategy, team_of


class Way(NamedTuple):
    """How a session works, and how it tells what came of it."""

    parallel: int
    """Runs worked on at once."""

    model_slots: int | None
    total: Mapping[str, float | None]
    """The limits of the whole that were given, by the names of a budget's fields."""

    output: Path | None
    as_json: bool
    tools: Tools
    """Of a new bench's runs; of one that goes on, beside their own."""


def begin(
    suite: Suite,
    strategies: str,
    seeds: int,
    course: Course,
    name: str | None,
    way: Way,
    settings: Settings,
) -> int:
    """Work on a new bench, or on the same one again; returns the exit code."""
    if way.output is not None:
        check_folder(way.output)
    refuse_fleeting(settings.store)
    terms = Terms(
        language=chosen_language(settings).name,
        models={
            one: role_models(settings, team_of(strategy(one)).roles) for one in names(strategies)
        },
        executor=settings.executor,
        budget=Budget(**settings.budget.model_dump()),
        parallel=settings.parallel,
        start=course.start,
        window_tokens=course.window_tokens,
        limits=limits(settings),
        tools=way.tools,
    )
    bench, runs = lay_out(suite, range(1, seeds + 1), terms, name)
    check_compiler(runs[0])  # of one language and one start, as all of them are
    bench = bench.model_copy(update={"budget": _changed(bench.budget, way.total)})
    models = ModelDoor(way.model_slots)
    for chosen in terms.models.values():
        models.open(chosen)
    executor = open_executor(terms.executor, terms.limits, terms.tools)
    with Store.open(settings.store) as store:
        bench = enter(store, bench, runs)
        return _work(bench, store, executor, models, way, settings)


def resume(name: str, way: Way, settings: Settings) -> int:
    """Go on with a bench, with the changed limits if there are any; returns the exit code."""
    if way.output is not None:
        check_folder(way.output)
    with Store.open(settings.store) as store:
        bench = store.bench(name)
        bench = bench.model_copy(update={"budget": _changed(bench.budget, way.total)})
        store.set_bench_budget(bench.name, bench.budget)
        models = ModelDoor(way.model_slots)
        firsts = {cell.strategy: cell.run_id for cell in reversed(bench.cells)}
        some = [store.run(run_id) for run_id in firsts.values()]
        for run in some:
            models.open(run.config.models)
        first = some[0]  # all were begun alike
        executor = open_executor(
            first.config.executor,
            limits(settings, first.config.limits),
            first.config.tools | way.tools,
        )
        return _work(bench, store, executor, models, way, settings)


def report(name: str, settings: Settings, output: Path | None, as_json: bool) -> int:
    """Print and write the report of a bench as it stands."""
    with Store.open(settings.store) as store:
        made = make_report(store, store.bench(name))
    _tell(made, output or report_folder(settings.store, made.bench.name), as_json)
    return 0


def list_benches(settings: Settings, as_json: bool) -> int:
    """Print every bench in a line."""
    with Store.open(settings.store) as store:
        benches = [store.bench(name) for name in reversed(store.benches())]
        waiting = {bench.name: len(unfinished(store, bench)) for bench in benches}
    if as_json:
        documents = [
            bench.model_dump(mode="json", exclude={"cells"})
            | {"runs": len(bench.cells), "unfinished": waiting[bench.name]}
            for bench in benches
        ]
        consoles.print_json(documents)
        return 0
    if not benches:
        consoles.results().print("There are no benches yet; `stark bench folder PATH` makes one.")
    for bench in benches:
        ended = len(bench.cells) - waiting[bench.name]
        said = f"{bench.name}: {head(bench)}; {ended} of {len(bench.cells)} runs have ended"
        consoles.results().print(Text(said), soft_wrap=True)
    return 0


def numbers(written: str, option: str) -> list[int]:
    """The numbers in `1,5-20`, each once, in the order written. Raises UsageError."""
    found: dict[int, None] = {}
    for part in written.split(","):
        span = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if span is None or (span[2] and int(span[2]) < int(span[1])):
            raise UsageError(f"{option} is {written!r}; write numbers and spans, such as 1,5-20")
        found.update(dict.fromkeys(range(int(span[1]), int(span[2] or span[1]) + 1)))
    return list(found)


def names(strategies: str) -> list[str]:
    """The strategies in `stark,sampling`, each once, in the order written. Raises UsageError."""
    written = [name.strip() for name in strategies.split(",") if name.strip()]
    if not written:
        raise UsageError("--strategy names no strategy; write one or more, separated by commas")
    return list(dict.fromkeys(written))


def report_folder(store: str, name: str) -> Path:
    """Where a bench's report goes."""
    return beside(store) / "bench" / name


def _changed(budget: Budget, total: Mapping[str, float | None]) -> Budget:
    given = {name: value for name, value in total.items() if value is not None}
    try:
        return Budget(**budget.model_dump() | given)
    except ValidationError as error:
        option = f"--total-{error.errors()[0]['loc'][0]}"
        raise UsageError(f"{option} should be greater than 0") from error


def _work(
    bench: Bench,
    store: Store,
    executor: Executor,
    models: ModelDoor,
    way: Way,
    settings: Settings,
) -> int:
    """Work until all runs have ended or a limit is reached, then report; 0 if all have ended and no problem was refused."""
    with _told_how_to_go_on(bench, settings):
        limit = run_interruptibly(_drive(bench, store, executor, models, way))
    folder = way.output or report_folder(settings.store, bench.name)
    made = make_report(store, bench)
    _tell(made, folder, way.as_json)
    lacking = []
    if made.refused:
        lacking.append(
            f"refused: {', '.join(made.refused)}, for the reasons that the report notes; where the machine is mended "
            f"{_go_on(bench, settings)} and tries them again, and with a mended file begin another bench, which takes over "
            "the runs of all other problems"
        )
    if waiting := len(unfinished(store, bench)):
        reason = (
            f"ended: {limit}"
            if limit
            else "some runs were set aside, since their models were out of reach or another process works on them"
        )
        left = f"{counted(waiting, 'run')} {'is' if waiting == 1 else 'are'} unfinished"
        lacking.append(f"{reason}; {left}; {_go_on(bench, settings)}")
    for said in lacking:
        consoles.progress(for_program=True).print(Text(said), soft_wrap=True)
    return 1 if lacking else 0


async def _drive(
    bench: Bench, store: Store, executor: Executor, models: ModelDoor, way: Way
) -> str | None:
    console = consoles.progress(way.as_json)
    try:
        async with open_bench_progress(console) as watch:
            return await BenchSession(bench, store, executor, models, watch, way.parallel).work()
    except asyncio.CancelledError:
        console.print("ending what is in flight; Ctrl-C once more ends at once")
        raise


def _tell(made: Report, folder: Path, as_json: bool) -> None:
    write_report(made, folder)
    if as_json:
        consoles.print_json(report_document(made) | {"folder": str(folder)})
        return
    say = consoles.results().print
    say(Text.assemble((made.bench.name, "bold"), f"  {head(made.bench)}"), soft_wrap=True)
    for note in made.notes:
        say(Text(note), soft_wrap=True)
    for sheet in sheets(made):
        say(Text(f"\n{sheet.title}", "bold"))
        say(_table(sheet))
    say(
        Text(f"\nreport: {folder / 'report.md'}, with tables and pictures beside it"),
        soft_wrap=True,
    )


def _table(sheet: Sheet) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in sheet.columns:
        words = column in ("level", "strategy", "strategies", "reference", "metric")
        table.add_column(column, no_wrap=words, justify="left" if words else "right")
    for row in sheet.rows:
        table.add_row(*map(Text, row))
    return table


@contextmanager
def _told_how_to_go_on(bench: Bench, settings: Settings) -> Iterator[None]:
    """Add to whatever ends the work early how to resume it."""
    try:
        yield
    except StarkError as stop:
        if not isinstance(stop, UsageError):  # which no resuming mends
            mended = ", once that is mended" if isinstance(stop, ModelRefused) else ""
            stop.add_note(f"all finished attempts are stored; {_go_on(bench, settings)}{mended}")
        raise


def _go_on(bench: Bench, settings: Settings) -> str:
    """Which command goes on with a bench of this store."""
    default = Settings.model_fields["store"].default
    where = "" if settings.store == default else f" --store {without_password(settings.store)}"
    return f"`stark bench resume {bench.name}{where}` goes on"
