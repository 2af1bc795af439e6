"""`stark bench`: its commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stark.cli.options import CHANGEABLE, EVERY, Group, JsonOption, command, option

if TYPE_CHECKING:
    from stark.cli.settings import Settings

bench = typer.Typer(
    name="bench",
    cls=Group,
    help="Run many problems with several strategies, and compare them.",
    no_args_is_help=True,
)

OPTIONS = [name for name in EVERY if name != "seed"]  # a bench has --seeds
# The runs of a bench are compared at a fixed number of attempts.
CHANGEABLE_OPTIONS = [name for name in CHANGEABLE if name != "attempts"]

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A bench's name, a unique prefix of a name, or `last`."),
]
FolderOption = Annotated[
    Path | None, option("FOLDER", "Where the report is written.", default="beside the store")
]
RunsOption = Annotated[int, option("NUMBER", "Maximum number of concurrent runs.", min=1)]
SlotsOption = Annotated[
    int | None,
    option("NUMBER", "Maximum number of concurrent model calls.", default="no limit", min=1),
]
WHOLE = "Budget of the whole bench"
TOTAL = option("NUMBER", "Limit for all runs together.", rich_help_panel=WHOLE)
TotalMinutes = Annotated[
    float | None,
    option("NUMBER", "Limit for the wall-clock time of this command.", rich_help_panel=WHOLE),
]


@command(bench, "store", "kernelbench", *OPTIONS)
def run(
    settings: Settings,
    problems: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH", help="Problem files, or folders of them, instead of --kernelbench."
        ),
    ] = None,
    level: Annotated[
        str | None, option("NUMBERS", "Levels of KernelBench, such as 1 or 1-3.", default=1)
    ] = None,
    numbers: Annotated[
        str | None,
        option(
            "NUMBERS",
            "Numbers of the problems in each level, such as 1,5-20.",
            "--problems",
            default="all",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        option("paper", "Use the paper's levels, strategies, number of attempts and metrics."),
    ] = None,
    seeds: Annotated[
        int, option("NUMBER", "Runs per problem and strategy, one per seed.", min=1)
    ] = 1,
    runs: RunsOption = 4,
    model_slots: SlotsOption = None,
    total_attempts: Annotated[int | None, TOTAL] = None,
    total_tokens: Annotated[int | None, TOTAL] = None,
    total_dollars: Annotated[float | None, TOTAL] = None,
    total_minutes: TotalMinutes = None,
    name: Annotated[
        str | None, option("TEXT", "Name of the bench.", default="made from its contents")
    ] = None,
    output: FolderOption = None,
    json: JsonOption = False,
) -> int:
    """Run every problem with every strategy (--strategy A,B,… compares A with the others)."""
    from stark.cli.benching import Session, run

    total = _totals(total_attempts, total_tokens, total_dollars, total_minutes)
    session = Session(settings, runs, model_slots, total, output, json)
    return run(problems or [], level, numbers, preset, seeds, name, session)


@command(bench, "store", *CHANGEABLE_OPTIONS, as_begun=True)
def resume(
    settings: Settings,
    name: NameArgument = "last",
    runs: RunsOption = 4,
    model_slots: SlotsOption = None,
    total_attempts: Annotated[int | None, TOTAL] = None,
    total_tokens: Annotated[int | None, TOTAL] = None,
    total_dollars: Annotated[float | None, TOTAL] = None,
    total_minutes: TotalMinutes = None,
    output: FolderOption = None,
    json: JsonOption = False,
) -> int:
    """Continue bench NAME: work on its unfinished runs, and retry the runs whose problems were refused."""
    from stark.cli.benching import Session, resume

    total = _totals(total_attempts, total_tokens, total_dollars, total_minutes)
    return resume(name, Session(settings, runs, model_slots, total, output, json))


@command(bench, "store")
def report(
    settings: Settings,
    name: NameArgument = "last",
    output: FolderOption = None,
    json: JsonOption = False,
) -> None:
    """Print and write the report of bench NAME as it stands."""
    from stark.cli.benching import report

    report(name, settings, output, json)


@command(bench, "store", name="list")
def list_benches(settings: Settings, json: JsonOption = False) -> None:
    """List the benches, the newest first."""
    from stark.cli.benching import list_benches

    list_benches(settings, json)


def _totals(
    attempts: int | None, tokens: int | None, dollars: float | None, minutes: float | None
) -> dict[str, float]:
    given = {"attempts": attempts, "tokens": tokens, "dollars": dollars, "minutes": minutes}
    return {name: value for name, value in given.items() if value is not None}
