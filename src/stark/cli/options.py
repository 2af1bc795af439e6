"""The options of the command line: those of a run are generated from `RunOptions`, the others are declared here.

`--help` imports this file. To keep help quick, this file imports no runs, no store and no judge.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup

from stark.core.usage import Price
from stark.options import RunOptions

EVERY = tuple(RunOptions.model_fields)
JUDGING = (
    "language",
    "backward",
    "executor",
    "device_class",
    "counters",
    "sanitizer",
    "precision",
    "build_s",
    "memory_gb",
)
"""The options that say how candidates are judged."""

CHANGEABLE = tuple(
    n
    for n in EVERY
    if n not in ("strategy", "language", "seed", "precision", "backward", "device_class")
)
"""The options that may change when a run is resumed."""

Function = TypeVar("Function", bound=Callable[..., int | None])


class _PlainFlags:
    """Shows flags without a type in help; Typer itself shows `--help <bool>`."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters of a command or a group."""
        found = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return found


class Command(_PlainFlags, TyperCommand):
    """A command."""


class Group(_PlainFlags, TyperGroup):
    """A group of commands."""


def command(
    group: typer.Typer, *names: str, name: str | None = None, as_begun: bool = False
) -> Callable[[Function], Function]:
    """Add a command whose options are the settings in `names`: `store`, `kernelbench` or fields of `RunOptions`.

    The decorated function gets all settings as its first argument, `settings`, and returns the exit code. With
    `as_begun`, help shows no defaults, since a resumed run keeps its own values.
    """
    kinds = {each: OTHERS.get(each) or _kind(each, as_begun) for each in names}
    keyword = inspect.Parameter.KEYWORD_ONLY
    settings = [
        inspect.Parameter(each, keyword, default=None, annotation=kind)
        for each, kind in kinds.items()
    ]

    def add(function: Function) -> Function:
        def called(**arguments: Any) -> None:
            from stark.cli.settings import load_settings

            written = {each: arguments.pop(each) for each in names}
            given = {each: value for each, value in written.items() if value is not None}
            raise typer.Exit(function(load_settings(**given), **arguments) or 0)

        own = inspect.signature(function, locals={"Settings": Any}, eval_str=True).parameters
        parameters = [*(own[each] for each in own if each != "settings"), *settings]
        called.__name__, called.__doc__ = function.__name__, function.__doc__
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        group.command(name, cls=Command)(called)
        return function

    return add


def flag(name: str) -> str:
    """The command-line option for a field of the settings."""
    return f"--{name.replace('_', '-')}"


def option(metavar: str, about: str, *names: str, default: object = None, **rules: Any) -> Any:
    """An option with a value; `default` is only shown in help."""
    # Typer would read bare brackets as markup.
    about += "" if default in (None, False) else rf" \[default: {default}]"
    return typer.Option(*names, metavar=metavar, help=about, **rules)


def _kind(name: str, as_begun: bool) -> Any:
    """The type of an option, annotated with its help."""
    field = RunOptions.model_fields[name]
    extra = field.json_schema_extra
    panel = extra.get("panel") if isinstance(extra, dict) else None
    default = None if as_begun else field.default
    shown = option(
        _metavar(field),
        field.description or "",
        _flags(name),
        default=default,
        rich_help_panel=panel,
    )
    return Annotated[_plain_type(field) | None, shown]


def _flags(name: str) -> str:
    """The command-line option for a field of `RunOptions`. If a flag may be on by default, another turns it off."""
    kinds = get_args(RunOptions.model_fields[name].annotation)
    return f"{flag(name)}/--no-{flag(name)[2:]}" if bool in kinds else flag(name)


def _plain_type(field: FieldInfo) -> Any:
    """What the command line reads: text, a number or a flag."""
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if kind in (int, float, bool)), str)


def _metavar(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return "|".join(get_args(field.annotation))
    if Price in get_args(field.annotation):
        return "INPUT/OUTPUT"
    return "TEXT" if _plain_type(field) is str else "NUMBER"


OTHERS: dict[str, Any] = {
    "store": Annotated[
        str | None,
        option("URL", "Database that stores the runs.", default="sqlite:///.stark/stark.db"),
    ],
    "kernelbench": Annotated[Path | None, option("FOLDER", "A checkout of KernelBench.")],
}
"""The settings that are not options of a run."""

ReplayOption = Annotated[
    Path | None,
    option("RECORDING", "Repeat a recorded run's choices and replies; judge the candidates again."),
]
OutputOption = Annotated[Path | None, option("FILE", "Where the best kernel is written.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document for programs, and nothing else.")
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, a unique prefix of an id, or `last`.")
]
