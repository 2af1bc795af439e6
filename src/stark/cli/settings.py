"""What a user has set: on the command line, by `STARK_…` variables, and in `stark.toml` in the working folder.

The command line takes precedence over the environment, and the environment over the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from stark.cli.options import flag
from stark.core.errors import UsageError
from stark.core.usage import Price
from stark.options import RunOptions, said, written_price
from stark.store import STORE

FILE = "stark.toml"
PREFIX = "STARK_"


class _Base(BaseSettings):
    """The sources and their order."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, toml_file=FILE
    )

    store: str = STORE
    kernelbench: Path | None = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line, environment, file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def _checked_price(text: str) -> str:
    """`3/15` as it is, for `RunOptions` to read; a variable of a model's type would have to be JSON."""
    written_price(text)
    return text


def _optional(field: FieldInfo) -> Any:
    """The type of an option that may be left out, with its bounds."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    if Price in kinds:
        return Annotated[str, AfterValidator(_checked_price)] | None
    inner = kinds[0] if NoneType in get_args(field.annotation) else field.annotation
    bounded: Any = Annotated[inner, *field.metadata] if field.metadata else inner
    return bounded | None


_FIELDS: Any = {name: (_optional(field), None) for name, field in RunOptions.model_fields.items()}
_Settings: Any = create_model("Settings", __base__=_Base, **_FIELDS)


class Settings:
    """Everything that is set."""

    def __init__(self, values: _Base, flags: Collection[str]) -> None:
        self.store: str = values.store
        self.kernelbench: Path | None = values.kernelbench
        self.options: dict[str, Any] = {
            name: value
            for name in RunOptions.model_fields
            if (value := getattr(values, name)) is not None
        }
        """The fields of `RunOptions` that are set, by name."""

        self.flags = flags
        """The names of those that are set on the command line."""


def load_settings(
    options: Mapping[str, Any] | None = None,
    store: str | None = None,
    kernelbench: Path | None = None,
) -> Settings:
    """The settings; `options` are those of the command line, by the names of `RunOptions`.

    Raises UsageError, which says what is wrong and where it was set.
    """
    given = {**(options or {}), "store": store, "kernelbench": kernelbench}
    given = {name: value for name, value in given.items() if value is not None}
    if Path(FILE).is_dir():
        raise UsageError(f"{FILE} is a folder, and should be a file; move it or rename it")
    try:
        return Settings(_Settings(**given), frozenset(options or ()))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{FILE} sets {name}, which is not a setting") from error
        raise UsageError(f"{_source(name, given)} is {said(first)}") from error
    except SettingsError as error:
        raise UsageError(f"a {PREFIX}… environment variable cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{FILE} is not a TOML file: {error}") from error
    except OSError as error:
        raise UsageError(f"{FILE} cannot be read: {error.strerror}; repair or move it") from error


def _source(name: str, given: Mapping[str, Any]) -> str:
    """What the user wrote to set this: an option, a variable or a line of the file."""
    if name in given:
        return flag(name)
    variable = f"{PREFIX}{name.upper()}"
    return f"{variable} in the environment" if variable in os.environ else f"{name} in {FILE}"
