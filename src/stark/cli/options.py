"""The command line's shared options, each declared once. Imports nothing heavy: `--help` needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MODELS = "Models"
BUDGET = "Budget"


def by_default(value: str) -> str:
    """The end of an option's help. Typer knows no default of what may be set elsewhere too, and reads bare brackets as markup."""
    return rf" \[default: {value}]"


def budget_flags(
    attempts: int | None, tokens: int | None, dollars: float | None, minutes: float | None
) -> dict[str, float | None]:
    """The limits that were given, by the names of a budget's fields."""
    return {"attempts": attempts, "tokens": tokens, "dollars": dollars, "minutes": minutes}


def role_flags(
    plan_model: str | None, code_model: str | None, debug_model: str | None
) -> dict[str, str | None]:
    """The models that were given for one role alone, by role."""
    return {"plan": plan_model, "code": code_model, "debug": debug_model}


ATTEMPTS_HELP = "End after so many evaluated candidates."
STOP_HELP = (
    "`auto` ends also within 5 % of the roofline, or when as many attempts brought no gain as led to the best "
    "(at least 10)."
)

ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="For every role: anthropic:NAME, openai:NAME, google:NAME, openrouter:NAME, ollama:NAME, "
        "vllm:NAME, llamacpp:NAME, openai-compatible:NAME@URL or exec:COMMAND.",
        rich_help_panel=MODELS,
    ),
]
PlanModelOption = Annotated[
    str | None,
    typer.Option(metavar="SPEC", help="For the plan role alone.", rich_help_panel=MODELS),
]
CodeModelOption = Annotated[
    str | None,
    typer.Option(metavar="SPEC", help="For the code role alone.", rich_help_panel=MODELS),
]
DebugModelOption = Annotated[
    str | None,
    typer.Option(metavar="SPEC", help="For the debug role alone.", rich_help_panel=MODELS),
]
AttemptsOption = Annotated[
    int | None,
    typer.Option(min=1, help=ATTEMPTS_HELP + by_default("30"), rich_help_panel=BUDGET),
]
MoreAttemptsOption = Annotated[
    int | None,
    typer.Option(
        min=1, help=ATTEMPTS_HELP + by_default("as many as before"), rich_help_panel=BUDGET
    ),
]
TokensOption = Annotated[
    int | None, typer.Option(min=1, help="End after so many tokens.", rich_help_panel=BUDGET)
]
DollarsOption = Annotated[
    float | None, typer.Option(help="End after so many dollars.", rich_help_panel=BUDGET)
]
MinutesOption = Annotated[
    float | None, typer.Option(help="End after so many minutes.", rich_help_panel=BUDGET)
]
WindowOption = Annotated[
    int | None,
    typer.Option(
        "--window-tokens",
        min=1,
        metavar="NUMBER",
        help="How long a prompt may be, about; other attempts are left out of it to fit."
        + by_default("32000"),
        rich_help_panel=MODELS,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Where runs are kept." + by_default("sqlite:///.stark/stark.db")
    ),
]
ExecutorOption = Annotated[
    str | None,
    typer.Option(
        metavar="NOTATION",
        help="Who judges: local, local:DEVICES, command:LINE (such as ssh) or folder:PATH."
        + by_default("local"),
    ),
]
CountersOption = Annotated[
    bool,
    typer.Option(
        "--counters",
        metavar="",
        help="On a GPU, read the counters of each correct candidate's kernels too, with NVIDIA's ncu: what holds them up.",
    ),
]
SanitizerOption = Annotated[
    bool,
    typer.Option(
        "--sanitizer",
        metavar="",
        help="On a GPU, run what is promoted under NVIDIA's compute-sanitizer too; what it finds makes it incorrect.",
    ),
]
LanguageOption = Annotated[
    str | None,
    typer.Option(help="cpp, triton or cuda." + by_default("the best for the device")),
]
StartOption = Annotated[
    str | None,
    typer.Option(
        metavar="reference|compiler",
        help="`compiler` makes what torch.compile generates the first attempt, for the others to go on from."
        + by_default("reference"),
    ),
]
StopOption = Annotated[
    str | None,
    typer.Option(
        metavar="budget|auto",
        help=STOP_HELP + by_default("budget"),
        rich_help_panel=BUDGET,
    ),
]
StopAnewOption = Annotated[
    str | None,
    typer.Option(
        metavar="budget|auto",
        help=STOP_HELP + by_default("as the run began"),
        rich_help_panel=BUDGET,
    ),
]
KernelBenchOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="A checkout of KernelBench, for names such as level1/23."),
]
ReplayOption = Annotated[
    Path | None,
    typer.Option(
        metavar="RECORDING", help="Take selections and replies from a recording; judge them live."
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where the best kernel is written.")
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", metavar="", help="Print one JSON document for programs, and nothing else."
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or `last`.")
]
