"""`stark`: the commands, and the one place where errors become exit codes.

0 done, 1 the work failed, 2 wrong use or environment, 130 interrupted by Ctrl-C or SIGTERM. Every command imports what it
needs when it is called, so that `stark --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from stark.cli.bench import bench
from stark.cli.options import (
    CHANGEABLE,
    EVERY,
    JUDGING,
    Commands,
    Group,
    JsonOption,
    KernelBenchOption,
    OutputOption,
    ReplayOption,
    RunArgument,
    StoreOption,
    flag,
    takes_options,
)

app = Commands(
    name="stark",
    cls=Group,
    help="Language-model agents that turn a PyTorch module into a faster, verified kernel.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors that are not StarkErrors are bugs and keep their traceback."""
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
@takes_options(EVERY)
def optimize(
    problem: Annotated[
        str | None,
        typer.Argument(
            metavar="PROBLEM", help="A KernelBench-style Python file, or level1/23 in a checkout."
        ),
    ] = None,
    kernelbench: KernelBenchOption = None,
    replay: ReplayOption = None,
    output: OutputOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    *,
    options: dict[str, Any],
) -> None:
    """Search for a faster kernel for PROBLEM and write the best one to a file."""
    from stark.cli.running import optimize as begin
    from stark.cli.settings import load_settings

    if replay is not None:
        _refuse_beside_replay(options)
    settings = load_settings(options, store, kernelbench)
    raise typer.Exit(begin(problem, settings, replay, output, json))


@app.command()
@takes_options(CHANGEABLE, as_begun=True)
def resume(
    run: RunArgument = "last",
    replay: ReplayOption = None,
    output: OutputOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    *,
    options: dict[str, Any],
) -> None:
    """Continue RUN: finish what was interrupted, or spend a larger budget (limits count from the start)."""
    from stark.cli.running import resume as go_on
    from stark.cli.settings import load_settings

    raise typer.Exit(go_on(run, options, load_settings(None, store), replay, output, json))


@app.command()
@takes_options(("executor",))
def demo(store: StoreOption = None, json: JsonOption = False, *, options: dict[str, Any]) -> None:
    """Optimize an example with recorded replies; builds, checks and timings are live. Needs no key and no GPU."""
    from stark.cli.running import demo as replayed
    from stark.cli.settings import load_settings

    raise typer.Exit(replayed(load_settings(options, store), json))


@app.command()
@takes_options(JUDGING)
def evaluate(
    problem: Annotated[
        str,
        typer.Argument(metavar="PROBLEM", help="A KernelBench-style Python file, or level1/23."),
    ],
    candidates: Annotated[
        list[Path],
        typer.Argument(metavar="CANDIDATE", help="Python files with ModelNew, or folders."),
    ],
    kernelbench: KernelBenchOption = None,
    effort: Annotated[
        str,
        typer.Option(
            metavar="promote|search",
            help="`promote` runs all checks and also measures against torch.compile; `search` runs only the quicker "
            "checks that each attempt gets during a search.",
        ),
    ] = "promote",
    min_speedup: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Exit with 1 unless the lower end of every speedup's interval is at least this.",
        ),
    ] = None,
    against: Annotated[
        str, typer.Option(metavar="eager|compile", help="What --min-speedup refers to.")
    ] = "eager",
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a JUnit report for CI.")
    ] = None,
    json: JsonOption = False,
    *,
    options: dict[str, Any],
) -> None:
    """Judge CANDIDATE files: do they compute what PROBLEM computes, and how fast?"""
    from stark.cli.evaluating import Demand
    from stark.cli.evaluating import evaluate as judge
    from stark.cli.settings import load_settings

    settings = load_settings(options, kernelbench=kernelbench)
    demand = Demand(min_speedup, against, junit)
    raise typer.Exit(judge(problem, candidates, settings, effort, demand, json))


@app.command()
def runs(store: StoreOption = None, json: JsonOption = False) -> None:
    """List the runs, the newest first."""
    from stark.cli.reading import list_runs
    from stark.cli.settings import load_settings

    raise typer.Exit(list_runs(load_settings(None, store), json))


@app.command()
def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's id, the beginning of one, `last`, or a recording's file; an all-digit argument alone "
            "is always an attempt of the last run.",
        ),
    ] = "last",
    attempt: Annotated[
        int | None, typer.Argument(metavar="ATTEMPT", help="An attempt's number.")
    ] = None,
    source: Annotated[
        bool,
        typer.Option(
            "--source",
            metavar="",
            help="Print only the attempt's source (default: the best attempt).",
        ),
    ] = False,
    prompt: Annotated[
        bool,
        typer.Option(
            "--prompt", metavar="", help="Print the attempt's prompts and the replies to them."
        ),
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show RUN with its tree, or one attempt of it in full."""
    from stark.cli.reading import Shown, show_run
    from stark.cli.settings import load_settings

    if attempt is None and run.isdigit():
        run, attempt = "last", int(run)
    shown = Shown(source, prompt, json)
    raise typer.Exit(show_run(run, attempt, load_settings(None, store), shown))


@app.command()
def record(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The JSON file to write.")],
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

    raise typer.Exit(record_run(run, file, without_problem, load_settings(None, store)))


@app.command()
@takes_options(("executor",))
def worker(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that `--executor folder:` names.")
    ],
    once: Annotated[
        bool, typer.Option("--once", metavar="", help="End when no request is waiting.")
    ] = False,
    *,
    options: dict[str, Any],
) -> None:
    """Judge the requests in FOLDER: the other side of `--executor folder:FOLDER`."""
    from stark.cli.settings import load_settings
    from stark.cli.working import work

    raise typer.Exit(work(folder, once, load_settings(options)))


@app.command()
def doctor(store: StoreOption = None, json: JsonOption = False) -> None:
    """Check this machine (devices, compilers, models, the store) and suggest fixes."""
    from stark.cli.doctor import examine
    from stark.cli.settings import load_settings

    raise typer.Exit(examine(load_settings(None, store), json))


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[
        bool,
        typer.Option("--version", metavar="", help="Print the version and exit.", is_eager=True),
    ] = False,
) -> None:
    """Language-model agents that turn a PyTorch module into a faster, verified kernel."""
    if version:
        from stark import __version__

        typer.echo(__version__)
        raise typer.Exit


def _refuse_beside_replay(options: dict[str, Any]) -> None:
    """Raise UsageError for options that a recording determines."""
    from stark.core.errors import UsageError

    if said := [flag(name) for name in options if name not in JUDGING or name == "language"]:
        them = "it" if len(said) == 1 else "them"
        raise UsageError(
            f"a replay follows its recording and takes no {', '.join(said)}; leave {them} out, or leave out --replay"
        )


def _say(*lines: str) -> None:
    with suppress(BrokenPipeError):  # the reader is gone
        for line in lines:
            typer.echo(line, err=True)
