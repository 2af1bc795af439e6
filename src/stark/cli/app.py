"""`stark`: the commands and their options, and the one place where errors become exit codes.

0 done, 1 the work failed, 2 wrong use or environment, 130 interrupted by Ctrl-C or SIGTERM. Every command imports what it
needs when it is called, so that `stark --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from stark.cli.bench_commands import bench
from stark.cli.options import (
    AttemptsOption,
    CodeModelOption,
    CountersOption,
    DebugModelOption,
    DollarsOption,
    ExecutorOption,
    JsonOption,
    KernelBenchOption,
    LanguageOption,
    MinutesOption,
    ModelOption,
    MoreAttemptsOption,
    OutputOption,
    PlanModelOption,
    ReplayOption,
    RunArgument,
    SanitizerOption,
    StartOption,
    StopAnewOption,
    StopOption,
    StoreOption,
    TokensOption,
    WindowOption,
    budget_flags,
    by_default,
    role_flags,
)

app = typer.Typer(
    name="stark",
    help="A team of language-model agents that turns a PyTorch module into a faster, verified kernel.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors that are no StarkError are bugs and keep their traceback."""
    if not sys.platform.startswith("linux"):
        _say("error: STARK runs on Linux only; use a Linux machine, WSL 2 or a container")
        return 2
    from stark.cli.interrupt import Interrupted
    from stark.core.errors import StarkError

    try:
        app(args=arguments, prog_name="stark")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except Interrupted as stop:
        _say(str(stop), *getattr(stop, "__notes__", ()))
        return stop.exit_code
    except StarkError as error:
        _say(f"error: {error}", *getattr(error, "__notes__", ()))
        return error.exit_code
    raise AssertionError("the command line always ends by an exit or an error")


@app.command()
def optimize(
    context: typer.Context,
    problem: Annotated[
        str | None,
        typer.Argument(help="A KernelBench-style Python file, or level1/23 in a checkout."),
    ] = None,
    model: ModelOption = None,
    plan_model: PlanModelOption = None,
    code_model: CodeModelOption = None,
    debug_model: DebugModelOption = None,
    window_tokens: WindowOption = None,
    attempts: AttemptsOption = None,
    tokens: TokensOption = None,
    dollars: DollarsOption = None,
    minutes: MinutesOption = None,
    stop: StopOption = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:POLICY]",
            help="stark, sampling, reflexion, search-only or team-only; stark:epsilon-greedy searches as "
            "the paper does, and docs/search.md lists the other policies." + by_default("stark"),
        ),
    ] = None,
    start: StartOption = None,
    language: LanguageOption = None,
    executor: ExecutorOption = None,
    counters: CountersOption = False,
    sanitizer: SanitizerOption = False,
    parallel: Annotated[
        int | None, typer.Option(min=1, help="Attempts in flight at once." + by_default("1"))
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the search's random choices." + by_default("random"))
    ] = None,
    kernelbench: KernelBenchOption = None,
    replay: ReplayOption = None,
    output: OutputOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Search for a faster kernel for PROBLEM and write the best one to a file."""
    from stark.cli.optimizing import optimize as begin
    from stark.cli.requests import course, refuse_beside_replay, refuse_unused_models
    from stark.cli.settings import load_settings
    from stark.core.judging import Tools

    if replay is not None:
        refuse_beside_replay(_options(context))
    models = role_flags(plan_model, code_model, debug_model)
    settings = load_settings(
        {
            "model": model,
            "models": models,
            "budget": budget_flags(attempts, tokens, dollars, minutes),
            "strategy": strategy,
            "language": language,
            "executor": executor,
            "parallel": parallel,
            "kernelbench": kernelbench,
            "store": store,
        }
    )
    refuse_unused_models(models, [settings.strategy])
    tools = Tools(counters=counters, sanitizer=sanitizer)
    way = course(start, stop, window_tokens)
    raise typer.Exit(begin(problem, settings, tools, seed, way, replay, output, json))


@app.command()
def resume(
    run: RunArgument = "last",
    attempts: MoreAttemptsOption = None,
    tokens: TokensOption = None,
    dollars: DollarsOption = None,
    minutes: MinutesOption = None,
    stop: StopAnewOption = None,
    model: ModelOption = None,
    plan_model: PlanModelOption = None,
    code_model: CodeModelOption = None,
    debug_model: DebugModelOption = None,
    counters: CountersOption = False,
    sanitizer: SanitizerOption = False,
    replay: ReplayOption = None,
    output: OutputOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Go on with RUN: finish what was interrupted, or spend a larger budget (limits count from the start)."""
    from stark.cli.optimizing import resume as go_on
    from stark.cli.settings import load_settings
    from stark.core.judging import Tools

    budget = budget_flags(attempts, tokens, dollars, minutes)
    settings = load_settings({"store": store, "budget": budget})
    tools = Tools(counters=counters, sanitizer=sanitizer)
    models = {"all": model, **role_flags(plan_model, code_model, debug_model)}
    raise typer.Exit(go_on(run, settings, tools, budget, stop, models, replay, output, json))


@app.command()
def evaluate(
    problem: Annotated[str, typer.Argument(help="A KernelBench-style Python file, or level1/23.")],
    candidates: Annotated[
        list[Path],
        typer.Argument(metavar="CANDIDATE...", help="Python files with ModelNew, or folders."),
    ],
    language: LanguageOption = None,
    executor: ExecutorOption = None,
    kernelbench: KernelBenchOption = None,
    effort: Annotated[
        str,
        typer.Option(
            help="`promote` checks everything and measures against torch.compile too; `search` is what a search does with each attempt."
        ),
    ] = "promote",
    counters: CountersOption = False,
    sanitizer: SanitizerOption = False,
    min_speedup: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="X",
            help="Exit 1 unless every file is correct and the lower end of its speedup's 95 % interval is at least X.",
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            metavar="REFERENCE", help="What --min-speedup compares with: eager or compile."
        ),
    ] = "eager",
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a JUnit XML report, one test case a file."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Judge CANDIDATE files: do they compute what PROBLEM computes, and how fast?"""
    from stark.cli.evaluating import Demand
    from stark.cli.evaluating import evaluate as judge
    from stark.cli.settings import load_settings
    from stark.core.judging import Tools

    settings = load_settings(
        {"language": language, "executor": executor, "kernelbench": kernelbench}
    )
    tools = Tools(counters=counters, sanitizer=sanitizer)
    demand = Demand(min_speedup, against, junit)
    raise typer.Exit(judge(problem, candidates, settings, tools, effort, demand, json))


@app.command()
def runs(store: StoreOption = None, json: JsonOption = False) -> None:
    """List the runs, the newest first."""
    from stark.cli.reading import list_runs
    from stark.cli.settings import load_settings

    raise typer.Exit(list_runs(load_settings({"store": store}), json))


@app.command()
def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run's id, the beginning of one, `last`, or a recording's file."
        ),
    ] = "last",
    node: Annotated[
        int | None, typer.Argument(metavar="[NODE]", help="An attempt's number.")
    ] = None,
    source: Annotated[
        bool,
        typer.Option(
            "--source", metavar="", help="Print only the attempt's source (the best one's)."
        ),
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show RUN with its tree, or one attempt of it in full."""
    from stark.cli.reading import show_run
    from stark.cli.settings import load_settings

    raise typer.Exit(show_run(run, node, load_settings({"store": store}), source, json))


@app.command()
def record(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(help="The JSON file to write.")],
    without_problem: Annotated[
        bool,
        typer.Option(
            "--without-problem",
            metavar="",
            help="Leave the problem's text out, for one that is not yours to publish.",
        ),
    ] = False,
    store: StoreOption = None,
) -> None:
    """Write RUN to FILE: every prompt, reply and evaluation, to be read or replayed elsewhere."""
    from stark.cli.reading import record_run
    from stark.cli.settings import load_settings

    raise typer.Exit(record_run(run, file, without_problem, load_settings({"store": store})))


@app.command()
def worker(
    folder: Annotated[Path, typer.Argument(help="The folder that `--executor folder:` names.")],
    once: Annotated[
        bool, typer.Option("--once", metavar="", help="End when nothing waits any more.")
    ] = False,
    executor: ExecutorOption = None,
) -> None:
    """Judge what waits in FOLDER: the other side of `--executor folder:FOLDER`."""
    from stark.cli.settings import load_settings
    from stark.cli.working import work

    raise typer.Exit(work(folder, once, load_settings({"executor": executor})))


@app.command()
def doctor(store: StoreOption = None, json: JsonOption = False) -> None:
    """Check this machine: devices, compilers, model keys, the store, and what to do about each."""
    from stark.cli.doctor import examine
    from stark.cli.settings import load_settings

    raise typer.Exit(examine(load_settings({"store": store}), json))


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[
        bool,
        typer.Option("--version", metavar="", help="Print the version and exit.", is_eager=True),
    ] = False,
) -> None:
    """A team of language-model agents that turns a PyTorch module into a faster, verified kernel."""
    if version:
        from stark import __version__

        typer.echo(__version__)
        raise typer.Exit


def _options(context: typer.Context) -> list[str]:
    """The options that stand on the command line."""
    given = []
    for parameter in context.command.params:
        source = parameter.name and context.get_parameter_source(parameter.name)
        if source and source.name == "COMMANDLINE":
            given.append(parameter.opts[0])
    return given


def _say(*lines: str) -> None:
    with suppress(BrokenPipeError):  # nobody reads any more
        for line in lines:
            typer.echo(line, err=True)
