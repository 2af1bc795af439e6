"""The options of the command line: those of a run are generated from `RunOptions`, the others are declared here.

Imports no run, no store and no judge: `--help` needs this file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup

from stark.core.usage import Price
from stark.options import BUDGET, RunOptions

EVERY = tuple(RunOptions.model_fields)
JUDGING = ("language", "executor", "counters", "sanitizer", "build_s", "memory_gb")
"""The options that say how candidates are judged."""

CHANGEABLE = tuple(n for n in EVERY if n not in ("strategy", "language", "seed", "start"))
"""The options that an earlier run may be given anew."""


Function = TypeVar("Function", bound=Callable[..., int | None])


class _PlainFlags:
    """Shows flags without a type in help; Typer shows `--help <bool>`."""

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
    group: typer.Typer,
    *names: str,
    name: str | None = None,
    as_begun: bool = False,
    budget_panel: str = BUDGET,
    parallel: str | None = None,
) -> Callable[[Function], Function]:
    """Add a command that takes these settings as options: fields of `RunOptions`, `store` and `kernelbench`.

    The function gets them as its argument `settings`, and returns the exit code. `as_begun` shows no defaults, since
    an earlier run's own values are kept. `budget_panel` is the heading of the limits, `parallel` the help of that option.
    """
    settings = [
        OTHERS[each]
        if each in OTHERS
        else _parameter(each, as_begun, budget_panel, parallel if each == "parallel" else None)
        for each in names
    ]

    def add(function: Function) -> Function:
        def called(**arguments: Any) -> None:
            from stark.cli.settings import load_settings

            written = {each: arguments.pop(each) for each in names}
            given = {
                each: value
                for each, value in written.items()
                if value is not None and value is not False
            }
            raise typer.Exit(function(**arguments, settings=load_settings(**given)) or 0)

        own = inspect.signature(function, locals={"Settings": Any}, eval_str=True).parameters
        parameters = [*(own[each] for each in own if each != "settings"), *settings]
        called.__name__, called.__doc__ = function.__name__, function.__doc__
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        group.command(name, cls=Command)(called)
        return function

    return add


def flag(name: str) -> str:
    """The option that sets a field."""
    return f"--{name.replace('_', '-')}"


def by_default(value: object) -> str:
    """The end of an option's help. Typer would read bare brackets as markup."""
    return rf" \[default: {value}]"


def _parameter(
    name: str, as_begun: bool, budget_panel: str, instead: str | None
) -> inspect.Parameter:
    field = RunOptions.model_fields[name]
    kind = _plain_type(field)
    about = instead or field.description or ""
    if not as_begun and field.default not in (None, False):
        about += by_default(field.default)
    extra = field.json_schema_extra
    panel: Any = extra.get("panel") if isinstance(extra, dict) else None
    option = typer.Option(
        flag(name),
        metavar=_metavar(field),
        help=about,
        rich_help_panel=budget_panel if panel == BUDGET else panel,
        show_default=False,
    )
    if kind is bool:
        return _setting(name, Annotated[bool, option], False)
    return _setting(name, Annotated[kind | None, option])


def _setting(name: str, annotation: Any, default: object = None) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def _plain_type(field: FieldInfo) -> Any:
    """What the command line reads: text, a number or a flag."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    kind = kinds[0] if kinds and get_origin(field.annotation) is not Literal else field.annotation
    return kind if kind in (int, float, bool) else str


def _metavar(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return "|".join(get_args(field.annotation))
    if Price in get_args(field.annotation):
        return "INPUT/OUTPUT"
    return {int: "NUMBER", float: "NUMBER"}.get(_plain_type(field), "TEXT")


STORE_ABOUT = "Where runs are kept." + by_default("sqlite:///.stark/stark.db")
OTHERS = {
    "store": _setting(
        "store", Annotated[str | None, typer.Option(metavar="URL", help=STORE_ABOUT)]
    ),
    "kernelbench": _setting(
        "kernelbench",
        Annotated[Path | None, typer.Option(metavar="FOLDER", help="A checkout of KernelBench.")],
    ),
}
"""The settings that are no options of a run."""

ReplayOption = Annotated[
    Path | None,
    typer.Option(
        metavar="RECORDING",
        help="Follow a recording's choices and model replies; build, check and time candidates anew.",
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where the best kernel is written.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document for programs, and nothing else.")
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or `last`.")
]
