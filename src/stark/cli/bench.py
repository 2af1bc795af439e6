"""`stark bench`: its commands, from what a user wrote to a bench that is worked on, and its report."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stark.cli.options import (
    CHANGEABLE,
    EVERY,
    Commands,
    Group,
    JsonOption,
    StoreOption,
    by_default,
    takes_options,
)

if TYPE_CHECKING:
    from stark.benches.report import Report
    from stark.benches.running import BenchEvent, OnBenchEvent
    from stark.benches.suite import Suite
    from stark.cli.settings import Settings

bench = Commands(
    name="bench",
    cls=Group,
    help="Run many problems with several strategies, and compare them.",
    no_args_is_help=True,
)

WHOLE = "Budget of the whole bench"
OF_EACH = "Budget of each run"
IN_EACH = "Attempts in flight in each run."
IN_A_BENCH = tuple(name for name in EVERY if name != "seed")
"""Options of a bench's runs, whose seeds are 1, 2, … (`--seeds`)."""

CHANGEABLE_IN_A_BENCH = tuple(name for name in CHANGEABLE if name != "attempts")
"""A bench keeps the number of attempts at which its runs are compared."""

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A bench's name, the beginning of one, or `last`.")
]
FolderOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Where the report is written." + by_default("beside the store")
    ),
]
RunsOption = Annotated[
    int, typer.Option("--runs", min=1, metavar="NUMBER", help="Maximum number of concurrent runs.")
]
SlotsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="NUMBER",
        help="Maximum number of concurrent model calls." + by_default("no limit"),
    ),
]


TogetherOption = typer.Option(
    min=1, metavar="NUMBER", help="Limit for all runs together.", rich_help_panel=WHOLE
)
TotalAttempts = Annotated[int | None, TogetherOption]
TotalTokens = Annotated[int | None, TogetherOption]
TotalDollars = Annotated[
    float | None,
    typer.Option(metavar="NUMBER", help="Limit for all runs together.", rich_help_panel=WHOLE),
]
TotalMinutes = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="Limit for this session's wall-clock time, all runs together.",
        rich_help_panel=WHOLE,
    ),
]


@bench.command()
@takes_options(IN_A_BENCH, budget_panel=OF_EACH, parallel=IN_EACH)
def run(
    problems: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Folders and files of problems."),
    ] = None,
    kernelbench: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A checkout of KernelBench, in place of paths."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="Its levels, such as 1 or 1-3." + by_default("1")),
    ] = None,
    numbers: Annotated[
        str | None,
        typer.Option(
            "--problems",
            metavar="NUMBERS",
            help="Its problems, such as 1,5-20, of each level." + by_default("all"),
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="paper",
            help="The published protocol on KernelBench: its levels, strategies, attempts and metrics.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="Number of seeds, and so of runs, per problem and strategy." + by_default("1"),
        ),
    ] = None,
    runs: RunsOption = 4,
    model_slots: SlotsOption = None,
    total_attempts: TotalAttempts = None,
    total_tokens: TotalTokens = None,
    total_dollars: TotalDollars = None,
    total_minutes: TotalMinutes = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the bench." + by_default("made from its contents"))
    ] = None,
    output: FolderOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    *,
    options: dict[str, Any],
) -> None:
    """Run every problem with every strategy (--strategy A,B,… compares A with the others)."""
    from stark.benches.entry import abench
    from stark.cli.settings import load_settings
    from stark.configuration import without_unused_models
    from stark.strategies import split_strategies

    options, levels, its_seeds = _with_preset(preset, options, level)
    strategies = split_strategies(options.pop("strategy", ""))
    settings = load_settings(options, store, kernelbench)
    suite = _suite(problems or [], settings.kernelbench, levels, numbers)
    given = settings.options
    in_file = split_strategies(given.pop("strategy", ""))
    chosen = strategies or in_file or ["stark"]
    given["in_each"] = given.pop("parallel", 1)
    given = without_unused_models(given, chosen, settings.flags)
    total = _totals(total_attempts, total_tokens, total_dollars, total_minutes)

    def work(on_event: OnBenchEvent) -> Coroutine[Any, Any, Report]:
        return abench(
            suite,
            strategies=chosen,
            seeds=seeds or its_seeds,
            name=name,
            total=total,
            parallel=runs,
            model_slots=model_slots,
            store=settings.store,
            on_event=on_event,
            **given,
        )

    raise typer.Exit(_work(work, settings, output, json))


@bench.command()
@takes_options(CHANGEABLE_IN_A_BENCH, as_begun=True, budget_panel=OF_EACH, parallel=IN_EACH)
def resume(
    name: NameArgument = "last",
    runs: RunsOption = 4,
    model_slots: SlotsOption = None,
    total_attempts: TotalAttempts = None,
    total_tokens: TotalTokens = None,
    total_dollars: TotalDollars = None,
    total_minutes: TotalMinutes = None,
    output: FolderOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    *,
    options: dict[str, Any],
) -> None:
    """Continue bench NAME: its unfinished runs, and those whose problems were refused."""
    from stark.benches.entry import resume_bench
    from stark.cli.settings import load_settings

    settings = load_settings(None, store)
    total = _totals(total_attempts, total_tokens, total_dollars, total_minutes)
    if "parallel" in options:
        options["in_each"] = options.pop("parallel")

    def work(on_event: OnBenchEvent) -> Coroutine[Any, Any, Report]:
        return resume_bench(
            name,
            total=total,
            parallel=runs,
            model_slots=model_slots,
            store=settings.store,
            on_event=on_event,
            **options,
        )

    raise typer.Exit(_work(work, settings, output, json))


@bench.command()
def report(
    name: NameArgument = "last",
    output: FolderOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Print and write the report of bench NAME as it stands."""
    from stark.benches.report import make_report
    from stark.cli.settings import load_settings
    from stark.store import Store

    settings = load_settings(None, store)
    with Store.open(settings.store, create=False) as opened:
        made = make_report(opened, opened.bench(name))
    _show(made, output or _report_folder(settings, made), json)


@bench.command("list")
def list_benches(store: StoreOption = None, json: JsonOption = False) -> None:
    """List the benches, the newest first."""
    from stark.benches.running import unfinished
    from stark.benches.tables import head
    from stark.cli import consoles
    from stark.cli.settings import load_settings
    from stark.store import Store

    with Store.open(load_settings(None, store).store, create=False) as opened:
        benches = [opened.bench(name) for name in reversed(opened.benches())]
        waiting = {each.name: len(unfinished(opened, each)) for each in benches}
    if json:
        consoles.print_json(
            [
                each.model_dump(mode="json", exclude={"cells"})
                | {"runs": len(each.cells), "unfinished": waiting[each.name]}
                for each in benches
            ]
        )
        return
    if not benches:
        consoles.results().print("There are no benches yet; `stark bench run PATH` makes one.")
    for each in benches:
        ended = len(each.cells) - waiting[each.name]
        consoles.say(f"{each.name}: {head(each)}; {ended} of {len(each.cells)} runs have ended")


def _with_preset(
    preset: str | None, options: dict[str, Any], level: str | None
) -> tuple[dict[str, Any], str, int]:
    """The options, levels and seeds, with those of a preset where none were given."""
    from stark.core.errors import UsageError

    if preset is None:
        return options, level or "1", 1
    if preset != "paper":
        raise UsageError(f"there is no preset {preset!r}; use `paper`")
    from stark.benches.preset import paper

    found = paper()
    levels = level or ",".join(map(str, found.levels))
    usual = {
        "strategy": ",".join(found.strategies),
        "attempts": found.attempts,
        "parallel": found.parallel,
        "start": found.start,
    }
    return {**usual, **options}, levels, found.seeds


def _suite(paths: list[Path], kernelbench: Path | None, levels: str, numbers: str | None) -> Suite:
    from stark.benches.suite import folders
    from stark.benches.suite import kernelbench as of_kernelbench
    from stark.core.errors import UsageError

    if paths:
        return folders(paths)
    if kernelbench is None:
        raise UsageError(
            "name folders or files of problems, or a checkout of KernelBench with --kernelbench FOLDER"
        )
    chosen = None if numbers is None else parse_numbers(numbers, "--problems")
    return of_kernelbench(kernelbench, parse_numbers(levels, "--level"), chosen)


def parse_numbers(written: str, option: str) -> list[int]:
    """The numbers in `1,5-20`, each once, in the order written."""
    from stark.core.errors import UsageError

    found: dict[int, None] = {}
    for part in written.split(","):
        span = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if span is None or (span[2] and int(span[2]) < int(span[1])):
            raise UsageError(f"{option} is {written!r}; write numbers and spans, such as 1,5-20")
        found.update(dict.fromkeys(range(int(span[1]), int(span[2] or span[1]) + 1)))
    return list(found)


def _totals(
    attempts: int | None, tokens: int | None, dollars: float | None, minutes: float | None
) -> dict[str, Any]:
    given = {"attempts": attempts, "tokens": tokens, "dollars": dollars, "minutes": minutes}
    return {name: value for name, value in given.items() if value is not None}


def _work(
    work: Callable[[OnBenchEvent], Coroutine[Any, Any, Report]],
    settings: Settings,
    output: Path | None,
    as_json: bool,
) -> int:
    """Work until all runs have ended or a limit is reached, then report; 0 if every run has a usable end."""
    from stark.benches.running import Opened
    from stark.cli import consoles
    from stark.cli.bench_live import open_bench_progress
    from stark.cli.interrupt import run_interruptibly
    from stark.cli.places import check_folder, refuse_fleeting
    from stark.core.errors import StarkError, UsageError

    if output is not None:
        check_folder(output)
    refuse_fleeting(settings.store)
    console, names = consoles.progress(as_json), list[str]()

    async def watched() -> Report:
        async with open_bench_progress(console) as progress:

            def on_event(event: BenchEvent) -> None:
                if isinstance(event, Opened):
                    names.append(event.bench.name)
                progress.handle(event)

            return await work(on_event)

    try:
        made = run_interruptibly(watched())
    except StarkError as stop:
        if names and not isinstance(stop, UsageError):  # resuming would not help
            stop.add_note(f"all finished attempts are stored; {_go_on(names[0], settings)}")
        raise
    _show(made, output or _report_folder(settings, made), as_json)
    lacking = _lacking(made, settings)
    for said in lacking:
        consoles.say(said, for_program=True)
    return 1 if lacking else 0


def _lacking(made: Report, settings: Settings) -> list[str]:
    """What keeps the bench from being complete."""
    go_on, lacking = _go_on(made.bench.name, settings), []
    if made.refused:
        lacking.append(
            f"refused problems: {', '.join(made.refused)}, for the reasons in the report; {go_on} and tries them "
            "again. After changing a problem's file start another bench, which takes over all other runs"
        )
    if waiting := len(made.results) - len(made.ended):
        left = f"{waiting} run{' is' if waiting == 1 else 's are'} unfinished"
        lacking.append(
            f"{left}: a limit of the whole bench was reached, or models were unreachable, or another process works "
            f"on them; {go_on}"
        )
    return lacking


def _show(made: Report, folder: Path, as_json: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from stark.benches.document import report_document
    from stark.benches.files import write_report
    from stark.benches.tables import head, sheets
    from stark.cli import consoles

    write_report(made, folder)
    if as_json:
        consoles.print_json(report_document(made) | {"folder": str(folder)})
        return
    console = consoles.results()
    console.print(Text.assemble((made.bench.name, "bold"), f"  {head(made.bench)}"), soft_wrap=True)
    for note in made.notes:
        console.print(Text(note), soft_wrap=True)
    for sheet in sheets(made):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for column in sheet.columns:
            words = column in ("level", "strategy", "strategies", "reference", "metric")
            table.add_column(column, no_wrap=words, justify="left" if words else "right")
        for row in sheet.rows:
            table.add_row(*map(Text, row))
        console.print(Text(f"\n{sheet.title}", "bold"))
        console.print(table)
    console.print(Text(f"\nreport: {folder / 'report.md'}, with tables beside it"), soft_wrap=True)


def _report_folder(settings: Settings, made: Report) -> Path:
    from stark.cli.places import beside

    return beside(settings.store) / "bench" / made.bench.name


def _go_on(name: str, settings: Settings) -> str:
    """The command that goes on with a bench of this store."""
    from stark.store import STORE, without_password

    where = "" if settings.store == STORE else f" --store {without_password(settings.store)}"
    return f"`stark bench resume {name}{where}` goes on"
