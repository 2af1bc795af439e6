"""What a user has set: on the command line, by `STARK_…` variables, and in `stark.toml` in the working directory.

The command line takes precedence over the environment, and the environment over the file.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from stark.cli.options import flag
from stark.core.errors import UsageError
from stark.options import RunOptions, said
from stark.store import STORE

FILE = "stark.toml"


class _Settings(RunOptions):
    store: str = STORE
    kernelbench: Path | None = None


class Settings(NamedTuple):
    """Everything that is set."""

    store: str
    kernelbench: Path | None
    options: dict[str, Any]
    """The fields of `RunOptions` that are set, by name."""

    given: dict[str, Any]
    """The options that are set on the command line, with their values before validation."""


def load_settings(**given: Any) -> Settings:
    """Read all settings; `given` are those of the command line.

    Raises UsageError, which says what is wrong and where it was set.
    """
    environment = {
        name: value for name in _Settings.model_fields if (value := os.environ.get(_variable(name)))
    }
    found = {**_read_file(), **environment, **given}
    try:
        settings = _Settings(**found)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{FILE} sets {name}, which is not a setting") from error
        where = (
            f"{_variable(name)} in the environment" if name in environment else f"{name} in {FILE}"
        )
        raise UsageError(f"{flag(name) if name in given else where} is {said(first)}") from error
    options = {name: getattr(settings, name) for name in RunOptions.model_fields if name in found}
    changes = {name: value for name, value in given.items() if name in options}
    return Settings(settings.store, settings.kernelbench, options, changes)


def _variable(name: str) -> str:
    return f"STARK_{name.upper()}"


def _read_file() -> dict[str, Any]:
    """What the file `stark.toml` sets; nothing if there is no such file. Raises UsageError."""
    path = Path(FILE)
    if path.is_dir():
        raise UsageError(f"{FILE} is a folder, and should be a file; move it or rename it")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{FILE} is not a TOML file: {error}") from error
    except OSError as error:
        raise UsageError(f"{FILE} cannot be read: {error.strerror}; repair or move it") from error
