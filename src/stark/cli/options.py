"""The options of the command line: those of a run are generated from `RunOptions`, the others are declared here.

Imports no run, no store and no judge: `--help` needs this file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

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


class Command(TyperCommand):
    """A command whose help shows `--help` as what it is, a flag; Typer shows `--help <bool>`."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option, without a type."""
        return _without_type(super().get_help_option(ctx))


class Group(TyperGroup):
    """The same for a group of commands."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option, without a type."""
        return _without_type(super().get_help_option(ctx))


class Commands(typer.Typer):
    """An application, or a group of commands."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """See `typer.Typer.command`."""
        return super().command(name, cls=Command, **options)


def _without_type(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option


def takes_options(
    names: Iterable[str], as_begun: bool = False, budget_panel: str = BUDGET, **instead: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each of these fields of `RunOptions`.

    The command gets those that were written as its argument `options`, by name. `as_begun` shows no defaults, since an
    earlier run's own values are kept. `budget_panel` is the heading of the limits. `instead` replaces help texts.
    """
    fields = {name: RunOptions.model_fields[name] for name in names}

    def generate(command: Callable[..., None]) -> Callable[..., None]:
        def called(**arguments: Any) -> None:
            written = {name: arguments.pop(name) for name in fields}
            given = {
                name: value
                for name, value in written.items()
                if value is not None and value is not False
            }
            command(**arguments, options=given)

        own = inspect.signature(command, eval_str=True).parameters
        parameters = [
            *(parameter for name, parameter in own.items() if name != "options"),
            *(
                _parameter(name, field, as_begun, budget_panel, instead.get(name))
                for name, field in fields.items()
            ),
        ]
        called.__name__, called.__doc__ = command.__name__, command.__doc__
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return generate


def flag(name: str) -> str:
    """The option that sets a field."""
    return f"--{name.replace('_', '-')}"


def by_default(value: object) -> str:
    """The end of an option's help. Typer would read bare brackets as markup."""
    return rf" \[default: {value}]"


def _parameter(
    name: str, field: FieldInfo, as_begun: bool, budget_panel: str, instead: str | None
) -> inspect.Parameter:
    kind = _plain_type(field)
    shows_default = not as_begun and field.default not in (None, False)
    about = (instead or field.description or "") + (
        by_default(field.default) if shows_default else ""
    )
    extra = field.json_schema_extra
    panel = extra.get("panel") if isinstance(extra, dict) else None
    if panel == BUDGET:
        panel = budget_panel
    option = typer.Option(
        flag(name),
        metavar="" if kind is bool else _metavar(field),
        help=about,
        rich_help_panel=panel if isinstance(panel, str) else None,
        show_default=False,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if kind is bool else None,
        annotation=Annotated[kind if kind is bool else kind | None, option],
    )


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


StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Where runs are kept." + by_default("sqlite:///.stark/stark.db")
    ),
]
KernelBenchOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="A checkout of KernelBench, for names such as level1/23."),
]
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
    bool,
    typer.Option(
        "--json", metavar="", help="Print one JSON document for programs, and nothing else."
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or `last`.")
]
