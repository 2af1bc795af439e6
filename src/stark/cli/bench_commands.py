"""`stark bench`: its commands and their options. Imports nothing heavy: `--help` needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stark.cli.options import (
    AttemptsOption,
    CodeModelOption,
    CountersOption,
    DebugModelOption,
    DollarsOption,
    ExecutorOption,
    JsonOption,
    LanguageOption,
    MinutesOption,
    ModelOption,
    PlanModelOption,
    SanitizerOption,
    StartOption,
    StoreOption,
    TokensOption,
    WindowOption,
    budget_flags,
    by_default,
    role_flags,
)

bench = typer.Typer(
    name="bench",
    help="Run many problems with several strategies, and compare them.",
    no_args_is_help=True,
)

WHOLE = "Budget of the whole bench"

StrategiesOption = Annotated[
    str,
    typer.Option(
        "--strategy",
        metavar="NAMES",
        help="Separated by commas; the first is compared with each of the others.",
    ),
]
SeedsOption = Annotated[
    int, typer.Option(min=1, help="Runs of each problem and strategy, with seeds 1, 2, …")
]
ParallelOption = Annotated[int, typer.Option(min=1, help="Runs worked on at once.")]
InEachOption = Annotated[
    int | None, typer.Option(min=1, help="Attempts in flight in each run." + by_default("1"))
]
SlotsOption = Annotated[
    int | None, typer.Option(min=1, help="Questions to models at once." + by_default("no limit"))
]
NameOption = Annotated[
    str | None, typer.Option(help="Of the bench." + by_default("made from what it consists of"))
]
FolderOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Where the report is written." + by_default("beside the store")
    ),
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A bench's name, the beginning of one, or `last`.")
]
TotalAttemptsOption = Annotated[
    int | None, typer.Option(min=1, help="Of all runs together.", rich_help_panel=WHOLE)
]
TotalTokensOption = Annotated[
    int | None, typer.Option(min=1, help="Of all runs together.", rich_help_panel=WHOLE)
]
TotalDollarsOption = Annotated[
    float | None, typer.Option(help="Of all runs together.", rich_help_panel=WHOLE)
]
TotalMinutesOption = Annotated[
    float | None, typer.Option(help="Of one session, on the clock.", rich_help_panel=WHOLE)
]


@bench.command()
def kernelbench(
    path: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A checkout of KernelBench." + by_default("as set")),
    ] = None,
    level: Annotated[str, typer.Option(metavar="NUMBERS", help="Such as 1 or 1-3.")] = "1",
    problems: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="Such as 1,5-20, of each level." + by_default("all")),
    ] = None,
    strategy: StrategiesOption = "stark",
    seeds: SeedsOption = 1,
    model: ModelOption = None,
    plan_model: PlanModelOption = None,
    code_model: CodeModelOption = None,
    debug_model: DebugModelOption = None,
    window_tokens: WindowOption = None,
    attempts: AttemptsOption = None,
    tokens: TokensOption = None,
    dollars: DollarsOption = None,
    minutes: MinutesOption = None,
    total_attempts: TotalAttemptsOption = None,
    total_tokens: TotalTokensOption = None,
    total_dollars: TotalDollarsOption = None,
    total_minutes: TotalMinutesOption = None,
    start: StartOption = None,
    language: LanguageOption = None,
    executor: ExecutorOption = None,
    counters: CountersOption = False,
    sanitizer: SanitizerOption = False,
    parallel: ParallelOption = 4,
    in_each: InEachOption = None,
    model_slots: SlotsOption = None,
    name: NameOption = None,
    output: FolderOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Problems of a KernelBench checkout. The same command again goes on where it stopped."""
    from stark.bench.suite import kernelbench as suite_of
    from stark.cli.benching import Way, begin, names, numbers
    from stark.cli.requests import course, refuse_unused_models
    from stark.cli.settings import load_settings
    from stark.core.judging import Tools

    models = role_flags(plan_model, code_model, debug_model)
    refuse_unused_models(models, names(strategy))
    settings = load_settings(
        {
            "model": model,
            "models": models,
            "budget": budget_flags(attempts, tokens, dollars, minutes),
            "language": language,
            "executor": executor,
            "parallel": in_each,
            "kernelbench": path,
            "store": store,
        }
    )
    suite = suite_of(
        settings.kernelbench,
        numbers(level, "--level"),
        None if problems is None else numbers(problems, "--problems"),
    )
    total = budget_flags(total_attempts, total_tokens, total_dollars, total_minutes)
    tools = Tools(counters=counters, sanitizer=sanitizer)
    way = Way(parallel, model_slots, total, output, json, tools)
    raise typer.Exit(
        begin(suite, strategy, seeds, course(start, None, window_tokens), name, way, settings)
    )


@bench.command()
def folder(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Folders of problem files, or files.")
    ],
    strategy: StrategiesOption = "stark",
    seeds: SeedsOption = 1,
    model: ModelOption = None,
    plan_model: PlanModelOption = None,
    code_model: CodeModelOption = None,
    debug_model: DebugModelOption = None,
    window_tokens: WindowOption = None,
    attempts: AttemptsOption = None,
    tokens: TokensOption = None,
    dollars: DollarsOption = None,
    minutes: MinutesOption = None,
    total_attempts: TotalAttemptsOption = None,
    total_tokens: TotalTokensOption = None,
    total_dollars: TotalDollarsOption = None,
    total_minutes: TotalMinutesOption = None,
    start: StartOption = None,
    language: LanguageOption = None,
    executor: ExecutorOption = None,
    counters: CountersOption = False,
    sanitizer: SanitizerOption = False,
    parallel: ParallelOption = 4,
    in_each: InEachOption = None,
    model_slots: SlotsOption = None,
    name: NameOption = None,
    output: FolderOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Problem files of one's own, by folder. The same command again goes on where it stopped."""
    from stark.bench.suite import folders
    from stark.cli.benching import Way, begin, names
    from stark.cli.requests import course, refuse_unused_models
    from stark.cli.settings import load_settings
    from stark.core.judging import Tools

    models = role_flags(plan_model, code_model, debug_model)
    refuse_unused_models(models, names(strategy))
    settings = load_settings(
        {
            "model": model,
            "models": models,
            "budget": budget_flags(attempts, tokens, dollars, minutes),
            "language": language,
            "executor": executor,
            "parallel": in_each,
            "store": store,
        }
    )
    total = budget_flags(total_attempts, total_tokens, total_dollars, total_minutes)
    tools = Tools(counters=counters, sanitizer=sanitizer)
    way = Way(parallel, model_slots, total, output, json, tools)
    raise typer.Exit(
        begin(
            folders(paths), strategy, seeds, course(start, None, window_tokens), name, way, settings
        )
    )


@bench.command()
def resume(
    name: NameArgument = "last",
    total_attempts: TotalAttemptsOption = None,
    total_tokens: TotalTokensOption = None,
    total_dollars: TotalDollarsOption = None,
    total_minutes: TotalMinutesOption = None,
    counters: CountersOption = False,
    sanitizer: SanitizerOption = False,
    parallel: ParallelOption = 4,
    model_slots: SlotsOption = None,
    output: FolderOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Go on with a bench: finish what was interrupted, try again what was refused, or spend a larger budget."""
    from stark.cli.benching import Way
    from stark.cli.benching import resume as go_on
    from stark.cli.settings import load_settings
    from stark.core.judging import Tools

    total = budget_flags(total_attempts, total_tokens, total_dollars, total_minutes)
    tools = Tools(counters=counters, sanitizer=sanitizer)
    way = Way(parallel, model_slots, total, output, json, tools)
    raise typer.Exit(go_on(name, way, load_settings({"store": store})))


@bench.command()
def report(
    name: NameArgument = "last",
    output: FolderOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Make the report of a bench again, from the store alone; also while it is being worked on."""
    from stark.cli.benching import report as tell
    from stark.cli.settings import load_settings

    raise typer.Exit(tell(name, load_settings({"store": store}), output, json))


@bench.command("list")
def list_benches(store: StoreOption = None, json: JsonOption = False) -> None:
    """List the benches, the newest first."""
    from stark.cli.benching import list_benches as tell
    from stark.cli.settings import load_settings

    raise typer.Exit(tell(load_settings({"store": store}), json))
