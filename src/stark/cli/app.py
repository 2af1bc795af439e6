"""`stark`: the commands, and the one place where errors become exit codes.

Exit codes: 0 for success, 1 if the work failed, 2 for wrong use or environment, 130 after Ctrl-C or SIGTERM. A command
imports what it needs only when it is called, so that `stark --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stark.cli.bench import bench
from stark.cli.options import (
    CHANGEABLE,
    EVERY,
    JUDGING,
    Group,
    JsonOption,
    OutputOption,
    ReplayOption,
    RunArgument,
    command,
    flag,
    option,
)
from stark.core.errors import OptionError, StarkError

if TYPE_CHECKING:
    from stark.cli.settings import Settings

app = typer.Typer(
    name="stark",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench)
skill = typer.Typer(
    name="skill",
    cls=Group,
    no_args_is_help=True,
    help="The instructions by which a coding agent uses these commands.",
)
app.add_typer(skill)

PROBLEM = typer.Argument(
    metavar="PROBLEM",
    help="A KernelBench-style Python file, a problem in a checkout of KernelBench, such as level1/23, a definition of "
    "FlashInfer-Bench or SOL-ExecBench, or your own module as package.module:Object with --inputs.",
)
CANDIDATES = typer.Argument(
    metavar="CANDIDATE", help="Python files with ModelNew, or folders of them."
)
MODULE = typer.Argument(
    metavar="MODULE",
    help="package.module:Object: an nn.Module, or a class or function that makes one without arguments.",
)
INPUTS = option(
    "NAME",
    "The arguments of your own module as package.module:example: a tuple, a dict of keywords, a tuple of both, or a "
    "list of these for several cases.",
    "--inputs",
)
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors that are not StarkErrors are bugs and keep their traceback."""
    if not sys.platform.startswith("linux"):
        advice = "use a Linux machine, WSL 2 or a container"
        typer.echo(f"error: STARK runs on Linux only; {advice}", err=True)
        return 2
    try:
        app(args=arguments, prog_name="stark")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except StarkError as error:
        text = error.naming(_flag) if isinstance(error, OptionError) else str(error)
        said = text if error.exit_code == INTERRUPTED else f"error: {text}"
        with suppress(BrokenPipeError):  # the reader is gone
            typer.echo("\n".join((said, *getattr(error, "__notes__", ()))), err=True)
        return error.exit_code
    raise AssertionError("the command line always ends with an exit or an error")


def _flag(name: str) -> str:
    """How messages name an option: a model may also be set in the environment."""
    return "--model (or STARK_MODEL)" if name == "model" else flag(name)


@command(app, "store", "kernelbench", *EVERY)
def optimize(
    settings: Settings,
    problem: Annotated[str | None, PROBLEM] = None,
    inputs: Annotated[str | None, INPUTS] = None,
    replay: ReplayOption = None,
    output: OutputOption = None,
    json: JsonOption = False,
) -> int:
    """Search for a faster kernel for PROBLEM and write the best one to a file."""
    from stark.cli.running import optimize

    return optimize(problem, inputs, settings, replay, output, json)


@command(app, "store", *CHANGEABLE, as_begun=True)
def resume(
    settings: Settings,
    run: RunArgument = "last",
    replay: ReplayOption = None,
    output: OutputOption = None,
    json: JsonOption = False,
) -> int:
    """Continue RUN: finish what was interrupted, or spend a larger budget (limits count from the run's start)."""
    from stark.cli.running import resume

    return resume(run, settings, replay, output, json)


@command(app, "store", "executor")
def demo(settings: Settings, json: JsonOption = False) -> int:
    """Optimize an example with recorded replies; builds, checks and timings are live. Needs no key and no GPU."""
    from stark.cli.running import demo

    return demo(settings, json)


@command(app)
def capture(
    settings: Settings,
    module: Annotated[str, MODULE],
    inputs: Annotated[str | None, INPUTS] = None,
    output: Annotated[
        Path | None, option("FILE", "The problem file to write; printed by default.")
    ] = None,
    name: Annotated[str | None, option("TEXT", "The problem's name.")] = None,
    backward: Annotated[
        bool, typer.Option("--backward", help="Verify and time kernels with gradients.")
    ] = False,
) -> int:
    """Write your own MODULE as a problem file: its code, and inputs like those of --inputs."""
    from stark.cli.capturing import capture

    return capture(module, inputs, output, name, backward)


@command(app, "kernelbench", *JUDGING)
def problem(
    settings: Settings,
    problem: Annotated[str, PROBLEM],
    inputs: Annotated[str | None, INPUTS] = None,
    guide: Annotated[
        bool,
        typer.Option(
            "--guide",
            help="Also print how candidates in --language are written, and techniques that may pay here.",
        ),
    ] = False,
    json: JsonOption = False,
) -> int:
    """Measure PROBLEM's reference: its time, roofline, inputs and outputs, error budget and device."""
    from stark.cli.problem import show_problem

    return show_problem(problem, inputs, settings, guide, json)


@command(app, "kernelbench", *JUDGING)
def check(
    settings: Settings,
    problem: Annotated[str, PROBLEM],
    candidates: Annotated[list[Path], CANDIDATES],
    inputs: Annotated[str | None, INPUTS] = None,
    json: JsonOption = False,
) -> int:
    """Build CANDIDATE files and verify them against PROBLEM, without a time."""
    from stark.cli.evaluating import check

    return check(problem, inputs, candidates, settings, json)


@command(app, "store", "kernelbench", *JUDGING)
def evaluate(
    settings: Settings,
    problem: Annotated[str, PROBLEM],
    candidates: Annotated[list[Path], CANDIDATES],
    inputs: Annotated[str | None, INPUTS] = None,
    effort: Annotated[
        str,
        option(
            "promote|search",
            "`promote` is the final check: all checks, and also measured against torch.compile, 10 to 30 s a file on a quiet machine and the time to compile. "
            "`search` runs only the quicker checks that each attempt gets during a search, about 3 s.",
        ),
    ] = "promote",
    min_speedup: Annotated[
        float | None,
        option(
            "NUMBER",
            "Exit with 1 if the 95 % interval of any candidate's speedup begins below this.",
        ),
    ] = None,
    against: Annotated[str, option("eager|compile", "The reference for --min-speedup.")] = "eager",
    junit: Annotated[Path | None, option("FILE", "Write a JUnit report for CI.")] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Store each evaluation as an attempt of the agent's run of PROBLEM, which `stark show` and the page "
            "show and `stark resume` can continue.",
        ),
    ] = False,
    parent: Annotated[
        int, option("ATTEMPT", "The attempt that CANDIDATE was made from.", default="the reference")
    ] = 0,
    idea: Annotated[str, option("TEXT", "What CANDIDATE tries, in one line.")] = "",
    json: JsonOption = False,
) -> int:
    """Judge CANDIDATE files: do they compute what PROBLEM computes, and how fast?"""
    from stark.cli.evaluating import Demand, Keeping, evaluate

    demand, keeping = Demand(min_speedup, against, junit), Keeping(keep, parent, idea)
    return evaluate(problem, inputs, candidates, settings, effort, demand, keeping, json)


@command(app, "store", *EVERY)
def hotspots(
    settings: Settings,
    module: Annotated[str, MODULE],
    inputs: Annotated[str | None, INPUTS] = None,
    top: Annotated[int, option("NUMBER", "Number of regions to show, and to compile.", min=1)] = 10,
    compiling: Annotated[
        bool,
        typer.Option(
            "--compile/--no-compile", help="Measure what torch.compile gains for these regions."
        ),
    ] = True,
    most: Annotated[
        int | None,
        option(
            "NUMBER",
            "Search kernels for this many of the best regions, apply those that win, and time the whole module. The "
            "regions share the limits on tokens, dollars and minutes.",
            "--optimize",
            min=1,
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Rank the regions of MODULE by the time that a faster kernel could save."""
    if most is None:
        from stark.cli.hotspots import hotspots

        backward = bool(settings.options.get("backward"))
        return hotspots(module, inputs, top, compiling, backward, json)
    from stark.cli.improving import optimize_hotspots

    return optimize_hotspots(module, inputs, most, settings, top, compiling, json)


@command(app, "store")
def runs(settings: Settings, json: JsonOption = False) -> None:
    """List the runs, the newest first."""
    from stark.cli.reading import list_runs

    list_runs(settings, json)


@command(app, "store")
def show(
    settings: Settings,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's id, a unique prefix of an id, `last`, or a recording's file. If RUN is a number and "
            "ATTEMPT is left out, the number is that of an attempt of the last run.",
        ),
    ] = "last",
    attempt: Annotated[
        int | None, typer.Argument(metavar="ATTEMPT", help="An attempt's number.")
    ] = None,
    source: Annotated[
        bool,
        typer.Option(
            "--source",
            help="Print only the source of ATTEMPT, or of the best attempt if ATTEMPT is left out.",
        ),
    ] = False,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print the attempt's prompts and the replies to them.")
    ] = False,
    html: Annotated[
        Path | None, option("FILE", "Write RUN as one HTML file that opens without a network.")
    ] = None,
    markdown: Annotated[
        Path | None, option("FILE", "Write a comment for a pull request, in Markdown.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show RUN with its tree, or one attempt of it in full."""
    from stark.cli.reading import show_run, write_run

    if html is not None or markdown is not None:
        write_run(run, settings, html, markdown)
        return
    if attempt is None and run.isdigit():
        run, attempt = "last", int(run)
    show_run(run, attempt, settings, source, prompt, json)


@command(app, "store")
def ui(
    settings: Settings,
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RECORDING", help="Show these recordings instead of the store."),
    ] = None,
    port: Annotated[
        int, option("NUMBER", "Where the page is; the next free port if it is busy.", min=1)
    ] = 8765,
    control: Annotated[
        bool,
        typer.Option(
            "--control",
            help="Also start, stop and resume runs from the page, with the token in the printed address.",
        ),
    ] = False,
) -> int:
    """Serve a page of all runs to browsers on this machine, live while runs go on. It only reads the store."""
    from stark.cli.serving import serve_page

    return serve_page(recordings or [], settings, port, control)


@command(app, "store", "kernelbench", "model", *JUDGING)
def mcp(
    settings: Settings,
    http: Annotated[
        int | None,
        option(
            "PORT", "Serve HTTP on this port of this machine, behind a token, instead of stdio."
        ),
    ] = None,
) -> int:
    """Serve the judge and the store to a coding agent as tools (Model Context Protocol)."""
    from stark.cli.mcp import serve

    return serve(settings, http)


@command(skill)
def install(
    settings: Settings,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="A folder of skills, such as .claude/skills."),
    ] = None,
    claude: Annotated[
        bool, typer.Option("--claude", help="Install for Claude Code, for all your projects.")
    ] = False,
    codex: Annotated[
        bool, typer.Option("--codex", help="Install for Codex, for all your projects.")
    ] = False,
) -> int:
    """Write the skill to DIR/stark/SKILL.md, or where an agent looks for it."""
    from stark.cli.skill import install

    return install(claude, codex, folder)


@command(skill, name="show")
def show_skill(settings: Settings) -> None:
    """Print the skill."""
    from stark.cli.skill import show

    show()


@command(app, "store")
def record(
    settings: Settings,
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The JSON file to write.")],
    without_problem: Annotated[
        bool,
        typer.Option(
            "--without-problem",
            help="Leave out the problem's text, if you may not publish it.",
        ),
    ] = False,
) -> None:
    """Write RUN to FILE: every prompt, reply and evaluation, to be read or replayed elsewhere."""
    from stark.cli.reading import record_run

    record_run(run, file, without_problem, settings)


@command(app, "store")
def export(
    settings: Settings,
    run: RunArgument,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The new folder, whose name is the package's.")
    ],
    attempt: Annotated[
        int | None, option("N", "The attempt to export.", default="the best one")
    ] = None,
) -> None:
    """Write the kernel of RUN as a Python package with a certificate, for pip and Hugging Face's `kernels`."""
    from stark.cli.deploying import export

    export(run, folder, attempt, settings)


@command(app, "executor")
def verify(
    settings: Settings,
    package: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A folder written by `stark export`, or an installed package."
        ),
    ],
    ci: Annotated[Path | None, option("FILE", "Write a JUnit report for CI.")] = None,
    markdown: Annotated[
        Path | None, option("FILE", "Write a comment for a pull request, in Markdown.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Judge an exported package again: exit with 0 if its claim is confirmed, 1 if refused, 2 without a verdict."""
    from stark.cli.deploying import verify

    return verify(package, settings, ci, markdown, json)


@command(app)
def worker(
    settings: Settings,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that `--executor folder:` names.")
    ],
    once: Annotated[bool, typer.Option("--once", help="End when no request is waiting.")] = False,
    executor: Annotated[
        str | None,
        option(
            "TEXT",
            "Where to judge: local, local:DEVICES, command:LINE or ray:ADDRESS.",
            default="local",
        ),
    ] = None,
) -> None:
    """Judge the requests left in FOLDER by runs with `--executor folder:FOLDER`."""
    from stark.cli.working import work

    work(folder, once, executor or settings.options.get("executor", "local"))


@command(app, "store")
def doctor(
    settings: Settings,
    executor: Annotated[
        str | None,
        option("TEXT", "Ask these judges about their machines instead, such as ray:HEAD:6379."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Check this machine (devices, compilers, models, the store) and suggest fixes."""
    if executor is not None:
        from stark.cli.judges import examine_judges

        return examine_judges(executor, json)
    from stark.cli.doctor import examine

    return examine(settings, json)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Language-model agents that turn a PyTorch module into a faster, verified kernel."""
    if version:
        from stark import __version__

        typer.echo(__version__)
        raise typer.Exit
