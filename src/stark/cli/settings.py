"""What a person has set: by flags, by `STARK_…` in the environment, by `stark.toml` in the working folder.

Flags win over the environment, and the environment over the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from stark.core.errors import UsageError

FILE = "stark.toml"
PREFIX = "STARK_"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(_Part):
    """One role's own model, in place of `model`."""

    plan: str | None = None
    code: str | None = None
    debug: str | None = None


class TemperatureSettings(_Part):
    """How freely each role answers; the paper's numbers, and the planner's for an agent alone."""

    plan: float = Field(default=0.8, ge=0, le=2)
    code: float = Field(default=0.1, ge=0, le=2)
    debug: float = Field(default=0.1, ge=0, le=2)
    solo: float = Field(default=0.8, ge=0, le=2)


class BudgetSettings(_Part):
    """When a run ends."""

    attempts: int = Field(default=30, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)


class LimitSettings(_Part):
    """Bounds for one candidate."""

    build_s: float = Field(default=180.0, gt=0)
    memory_gb: float = Field(default=16.0, gt=0)


class Settings(BaseSettings):
    """All that can be set; `models.plan` is `STARK_MODELS_PLAN` in the environment."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        toml_file=FILE,
    )

    model: str | None = None
    models: ModelSettings = ModelSettings()
    temperatures: TemperatureSettings = TemperatureSettings()
    strategy: str = "stark"
    language: str | None = None
    executor: str = "local"
    parallel: int = Field(default=1, ge=1)
    budget: BudgetSettings = BudgetSettings()
    limits: LimitSettings = LimitSettings()
    store: str = "sqlite:///.stark/stark.db"
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
        """Flags, environment, file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(flags: Mapping[str, Any]) -> Settings:
    """The settings, `flags` by the names of the fields; one that is None was not given.

    Raises UsageError, which says what is wrong and where it was set.
    """
    given = _given(flags)
    if Path(FILE).is_dir():
        raise UsageError(f"{FILE} is a folder, and should be a file; move it or rename it")
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        place = tuple(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{FILE} sets {'.'.join(place)}, which is no setting") from error
        reason = first["msg"].removeprefix("Input should be ")
        if first["type"] == "model_type":
            reason = f"a table, [{place[0]}] in {FILE}, with {_names_in(place[0])}"
        raise UsageError(
            f"{_source(place, given)} is {first['input']!r}, and should be {reason}"
        ) from error
    except SettingsError as error:
        raise UsageError(
            f"a {PREFIX}… variable in the environment cannot be read: {error}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{FILE} is no TOML file: {error}") from error
    except OSError as error:
        raise UsageError(f"{FILE} cannot be read: {error.strerror}; mend or move it") from error


def _names_in(table: str) -> str:
    part = Settings.model_fields[table].annotation
    assert isinstance(part, type) and issubclass(part, BaseModel)
    *names, last = part.model_fields
    return f"{', '.join(names)} or {last}"


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given, nested as the settings are."""
    given: dict[str, Any] = {}
    for name, value in flags.items():
        if isinstance(value, Mapping):
            value = _given(value) or None
        if value is not None:
            given[name] = value
    return given


def _source(place: tuple[str, ...], given: Mapping[str, Any]) -> str:
    """What a person wrote to set this: a flag, a variable or a line of the file."""
    inner: Any = given
    for part in place:
        inner = inner.get(part) if isinstance(inner, Mapping) else None
    if inner is not None:
        return f"--{place[-1].replace('_', '-')}"
    names = ["_".join(place[: depth + 1]) for depth in range(len(place))]
    for name in (PREFIX + name.upper() for name in reversed(names)):
        if name in os.environ:
            return f"{name} in the environment"
    return f"{'.'.join(place)} in {FILE}"
