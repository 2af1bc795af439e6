"""`stark bench`: its commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stark.cli.options import CHANGEABLE, EVERY, Group, JsonOption, by_default, command

if TYPE_CHECKING:
    from stark.cli.settings import Settings

bench = typer.Typer(
    name="bench",
    cls=Group,
    help="Run many problems with several strategies, and compare them.",
    no_args_is_help=True,
)

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


def _total(about: str) -> Any:
    return typer.Option(metavar="NUMBER", help=about, rich_help_panel="Budget of the whole bench")


TotalCount = Annotated[int | None, _total("Limit for all runs together.")]
TotalDollars = Annotated[float | None, _total("Limit for all runs together.")]
TotalMinutes = Annotated[
    float | None, _total("Limit for this session's wall-clock time, all runs together.")
]


@command(bench, "store", "kernelbench", *IN_A_BENCH, budget_panel=OF_EACH, parallel=IN_EACH)
def run(
    problems: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH", help="Folders and files of problems, in place of --kernelbench."
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS", help="Levels of KernelBench, such as 1 or 1-3." + by_default("1")
        ),
    ] = None,
    numbers: Annotated[
        str | None,
        typer.Option(
            "--problems",
            metavar="NUMBERS",
            help="Problems of each level, such as 1,5-20." + by_default("all"),
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
    total_attempts: TotalCount = None,
    total_tokens: TotalCount = None,
    total_dollars: TotalDollars = None,
    total_minutes: TotalMinutes = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the bench." + by_default("made from its contents"))
    ] = None,
    output: FolderOption = None,
    json: JsonOption = False,
    *,
    settings: Settings,
) -> int:
    """Run every problem with every strategy (--strategy A,B,… compares A with the others)."""
    from stark.cli.benching import Session, run

    total = _totals(total_attempts, total_tokens, total_dollars, total_minutes)
    session = Session(settings, runs, model_slots, total, output, json)
    return run(problems or [], level, numbers, preset, seeds, name, session)


@command(
    bench,
    "store",
    *CHANGEABLE_IN_A_BENCH,
    as_begun=True,
    budget_panel=OF_EACH,
    parallel=IN_EACH,
)
def resume(
    name: NameArgument = "last",
    runs: RunsOption = 4,
    model_slots: SlotsOption = None,
    total_attempts: TotalCount = None,
    total_tokens: TotalCount = None,
    total_dollars: TotalDollars = None,
    total_minutes: TotalMinutes = None,
    output: FolderOption = None,
    json: JsonOption = False,
    *,
    settings: Settings,
) -> int:
    """Continue bench NAME: its unfinished runs, and those whose problems were refused."""
    from stark.cli.benching import Session, resume

    total = _totals(total_attempts, total_tokens, total_dollars, total_minutes)
    return resume(name, Session(settings, runs, model_slots, total, output, json))


@command(bench, "store")
def report(
    name: NameArgument = "last",
    output: FolderOption = None,
    json: JsonOption = False,
    *,
    settings: Settings,
) -> None:
    """Print and write the report of bench NAME as it stands."""
    from stark.cli.benching import report

    report(name, settings, output, json)


@command(bench, "store", name="list")
def list_benches(json: JsonOption = False, *, settings: Settings) -> None:
    """List the benches, the newest first."""
    from stark.cli.benching import list_benches

    list_benches(settings, json)


def _totals(
    attempts: int | None, tokens: int | None, dollars: float | None, minutes: float | None
) -> dict[str, float]:
    given = {"attempts": attempts, "tokens": tokens, "dollars": dollars, "minutes": minutes}
    return {name: value for name, value in given.items() if value is not None}
