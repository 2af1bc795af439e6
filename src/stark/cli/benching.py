"""`stark bench`: turns arguments into a bench (many problems, run with several strategies), works on it and reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.table import Table
from rich.text import Text

from stark.benches.document import BenchHead, ReportDocument, report_document, write_report
from stark.benches.entry import abench, resume_bench
from stark.benches.preset import PAPER_LEVELS, PAPER_OPTIONS, PAPER_STRATEGIES
from stark.benches.report import Report, make_report
from stark.benches.running import Opened, unfinished
from stark.benches.suite import Suite, folders, kernelbench
from stark.benches.tables import head, sheets
from stark.cli import consoles
from stark.cli.bench_live import open_bench_progress
from stark.cli.places import beside, check_folder, refuse_fleeting
from stark.cli.settings import Settings
from stark.cli.showing import run_shown
from stark.configuration import without_unused_models
from stark.core.base import Frozen
from stark.core.errors import StarkError, UsageError
from stark.store import STORE, Store, without_password
from stark.strategies import split_strategies


class BenchDocument(ReportDocument):
    """What a bench prints."""

    folder: str
    """Where the report was written."""


class BenchLine(BenchHead):
    """One bench in a list."""

    runs: int
    unfinished: int


class BenchesDocument(Frozen):
    """The benches, the newest first."""

    version: Literal[1] = 1
    benches: tuple[BenchLine, ...]


class Session(NamedTuple):
    """The arguments that `stark bench run` and `stark bench resume` share."""

    settings: Settings
    runs: int
    model_slots: int | None
    total: dict[str, float]
    output: Path | None
    as_json: bool


def run(
    problems: list[Path],
    level: str | None,
    numbers: str | None,
    preset: str | None,
    seeds: int,
    name: str | None,
    session: Session,
) -> int:
    """Begin a bench, or continue it, and show its report; returns the exit code."""
    settings = session.settings
    options, levels = _with_preset(preset, settings, level)
    suite = _suite(problems, settings.kernelbench, levels, numbers)
    strategies = split_strategies(options.pop("strategy", "stark"))
    options["in_each"] = options.pop("parallel", 1)
    options = without_unused_models(options, strategies, settings.given)
    begin = partial(abench, suite, strategies=strategies, seeds=seeds, name=name, **options)
    return _work(begin, session)


def resume(name: str, session: Session) -> int:
    """Continue a bench with the options that the command line changes, and show its report; returns the exit code."""
    changes = dict(session.settings.given)
    if "parallel" in changes:
        changes["in_each"] = changes.pop("parallel")
    return _work(partial(resume_bench, name, **changes), session)


def report(name: str, settings: Settings, output: Path | None, as_json: bool) -> None:
    """Print and write the report of a bench as it stands."""
    with Store.open(settings.store, create=False) as store:
        made = make_report(store, store.bench(name))
    _show(made, settings, output, as_json)


def list_benches(settings: Settings, as_json: bool) -> None:
    """Print one line per bench."""
    with Store.open(settings.store, create=False) as store:
        benches = [store.bench(name) for name in reversed(store.benches())]
        waiting = {each.name: len(unfinished(store, each)) for each in benches}
    if as_json:
        lines = (
            BenchLine(**dict(each), runs=len(each.cells), unfinished=waiting[each.name])
            for each in benches
        )
        consoles.print_json(BenchesDocument(benches=tuple(lines)))
        return
    if not benches:
        consoles.say("There are no benches yet; `stark bench run PATH` makes one.")
    for each in benches:
        ended = len(each.cells) - waiting[each.name]
        consoles.say(f"{each.name}: {head(each)}; {ended} of {len(each.cells)} runs have ended")


def _with_preset(
    preset: str | None, settings: Settings, level: str | None
) -> tuple[dict[str, Any], str]:
    """The options and KernelBench levels. A preset takes precedence over all settings but the command line."""
    if preset is None:
        return dict(settings.options), level or "1"
    if preset != "paper":
        raise UsageError(f"there is no preset {preset!r}; use `paper`")
    usual = {"strategy": ",".join(PAPER_STRATEGIES), **PAPER_OPTIONS}
    options = {**settings.options, **usual, **settings.given}
    return options, level or ",".join(map(str, PAPER_LEVELS))


def _suite(paths: list[Path], checkout: Path | None, levels: str, numbers: str | None) -> Suite:
    if paths:
        return folders(paths)
    if checkout is None:
        raise UsageError(
            "give problems as files or folders, or a checkout of KernelBench as --kernelbench FOLDER"
        )
    chosen = None if numbers is None else parse_numbers(numbers, "--problems")
    return kernelbench(checkout, parse_numbers(levels, "--level"), chosen)


def parse_numbers(written: str, option: str) -> list[int]:
    """The numbers in `1,5-20`, each once, in the order written."""
    found: dict[int, None] = {}
    for part in written.split(","):
        span = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if span is None or (span[2] and int(span[2]) < int(span[1])):
            raise UsageError(f"{option} is {written!r}; write numbers and ranges, such as 1,5-20")
        found.update(dict.fromkeys(range(int(span[1]), int(span[2] or span[1]) + 1)))
    return list(found)


def _work(begin: Callable[..., Coroutine[Any, Any, Report]], session: Session) -> int:
    """Work until all runs have ended or a limit is reached, then show the report.

    Returns 0 if every run has ended and no problem was refused, else 1.
    """
    settings = session.settings
    if session.output is not None:
        check_folder(session.output)
    refuse_fleeting(settings.store)

    def how_to_resume(opened: Opened, _: StarkError) -> str:
        return f"all finished attempts are stored; {_go_on(opened.bench.name, settings)}"

    work = partial(
        begin,
        total=session.total,
        parallel=session.runs,
        model_slots=session.model_slots,
        store=settings.store,
    )
    view = open_bench_progress(consoles.console(session.as_json))
    made = run_shown(work, view, Opened, how_to_resume)
    _show(made, settings, session.output, session.as_json)
    lacking = _lacking(made, settings)
    for said in lacking:
        consoles.say(said, stderr=True)
    return 1 if lacking else 0


def _lacking(made: Report, settings: Settings) -> list[str]:
    """Why the bench is incomplete, in sentences; empty if it is complete."""
    go_on, lacking = _go_on(made.bench.name, settings), []
    if made.refused:
        lacking.append(
            f"refused problems: {', '.join(made.refused)}, for the reasons in the report; {go_on} and tries them "
            "again. After changing a problem's file, start another bench, which reuses the runs of all other problems"
        )
    if waiting := len(made.results) - len(made.ended):
        left = f"{waiting} run{' is' if waiting == 1 else 's are'} unfinished"
        lacking.append(
            f"{left}: a limit of the whole bench was reached, models were unreachable, or another process is working "
            f"on a run; {go_on}"
        )
    return lacking


def _show(made: Report, settings: Settings, output: Path | None, as_json: bool) -> None:
    folder = output or beside(settings.store) / "bench" / made.bench.name
    write_report(made, folder)
    if as_json:
        consoles.print_json(BenchDocument(**dict(report_document(made)), folder=str(folder)))
        return
    console = consoles.console()
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


def _go_on(name: str, settings: Settings) -> str:
    """The part of a message that names the command to continue a bench."""
    where = "" if settings.store == STORE else f" --store {without_password(settings.store)}"
    return f"`stark bench resume {name}{where}` continues the bench"
