"""The options of a run: one list for Python, the command line and `stark.toml`.

`RunOptions` has defaults; `configure` (in `stark.configuration`) resolves it to a `RunConfig`, in which every value is
set. The fields below also define the options of the command line.
"""

from __future__ import annotations

import re
from inspect import formatannotation
from textwrap import fill
from typing import Any

from pydantic import Field, ValidationError, field_validator

from stark.core.base import Frozen
from stark.core.errors import UsageError
from stark.core.precision import DEFAULT, Precision
from stark.core.run import WINDOW_TOKENS, Lessons, Stop
from stark.core.usage import Price

MODELS, BUDGET, JUDGE = "Models", "Budget of a run", "Judge"
"""Groups of options in help texts."""


def _option(default: Any, description: str, panel: str | None = None, **rules: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"panel": panel}, **rules)


class RunOptions(Frozen):
    """The options of a run. Every field is also `--field-name`, `STARK_FIELD_NAME` and a key of `stark.toml`."""

    model: str | None = _option(
        None,
        "Model of every role: anthropic:NAME, openai:NAME, google:NAME, openrouter:NAME, ollama:NAME, vllm:NAME, "
        "llamacpp:NAME, openai-compatible:NAME@URL or exec:COMMAND.",
        MODELS,
    )
    plan_model: str | None = _option(None, "Model of the plan role.", MODELS)
    code_model: str | None = _option(None, "Model of the code role.", MODELS)
    debug_model: str | None = _option(None, "Model of the debug role.", MODELS)
    plan_temperature: float = _option(0.8, "Temperature of the plan role.", MODELS, ge=0, le=2)
    code_temperature: float = _option(0.1, "Temperature of the code role.", MODELS, ge=0, le=2)
    debug_temperature: float = _option(0.1, "Temperature of the debug role.", MODELS, ge=0, le=2)
    solo_temperature: float = _option(
        0.8, "Temperature for single-agent strategies.", MODELS, ge=0, le=2
    )
    window_tokens: int = _option(
        WINDOW_TOKENS,
        "Approximate prompt limit in tokens; earlier attempts quoted in the prompt are shortened or left out to fit.",
        MODELS,
        ge=1,
    )
    price: Price | None = _option(
        None,
        "Price of the models, in place of list prices, in dollars per million input and output tokens, such as 3/15.",
        MODELS,
    )
    unpriced: bool = _option(
        False, "Accept models whose price is unknown, even with a dollar limit.", MODELS
    )
    attempts: int = _option(30, "End after this many attempts.", BUDGET, ge=1)
    tokens: int | None = _option(None, "End after this many tokens.", BUDGET, ge=1)
    dollars: float | None = _option(None, "End after this many dollars.", BUDGET, gt=0)
    minutes: float | None = _option(None, "Start no attempt after this many minutes.", BUDGET, gt=0)
    stop: Stop = _option(
        "budget",
        "`auto`: also end when the best kernel is near the roofline, or when the latest attempts (at "
        "least 10, and at least half of the run's attempts so far) brought no improvement.",
        BUDGET,
    )
    tune_seconds: float = _option(
        0.0,
        "Seconds of the device for each attempt among the fastest, to try other values of the constants that its file "
        "declares; this costs no tokens. 0 turns it off.",
        BUDGET,
        ge=0,
    )
    strategy: str = _option(
        "stark",
        "stark, sampling, reflexion, search-only or team-only; NAME:POLICY sets another search policy, such as "
        "stark:best-first or stark:epsilon-greedy(epsilon=0.2).",
    )
    lessons: Lessons = _option(
        "none",
        "`auto`: show up to five lessons of ended runs in the store to the roles that plan: ideas with their gain or their "
        "failure, from similar problems, never from the same one.",
    )
    language: str | None = _option(
        None,
        "Kernel language: cpp, triton, cuda, gluon, cutedsl or pytorch; auto lets the planner choose among those of the "
        "judge's machine; by default the best for the device.",
    )
    backward: bool = _option(
        False,
        "Verify and time forward with backward: gradients of all floating-point inputs and of all parameters. As "
        "`BACKWARD = True` in the problem's file.",
    )
    parallel: int = _option(1, "Maximum number of concurrent attempts in a run.", ge=1)
    seed: int | None = _option(None, "Seed of the search; random by default.")
    executor: str = _option(
        "local",
        "Where candidates are judged: local, local:DEVICES, command:LINE (a judge behind a command such as ssh), "
        "folder:PATH (shared with `stark worker`), or ray:ADDRESS (a cluster).",
        JUDGE,
    )
    device_class: tuple[str, ...] | None = _option(
        None,
        "Use only machines in whose kind this text occurs, such as H100; by default those of the kind that answers "
        "first. H100,H200 searches on the first, and has the leaders judged on the others too.",
        JUDGE,
    )
    counters: bool = _option(
        False,
        "On a GPU, also read the hardware counters of correct candidates with NVIDIA's ncu.",
        JUDGE,
    )
    sanitizer: bool | None = _option(
        None,
        "Look for memory errors at the final check; a candidate that has one is incorrect. On a CPU, for C++, by "
        "AddressSanitizer and UndefinedBehaviorSanitizer, on by default; on a GPU by NVIDIA's compute-sanitizer, off by "
        "default.",
        JUDGE,
    )
    precision: Precision = _option(
        DEFAULT,
        "How large a candidate's error may be: as small as the reference's own, or as with float32 split into parts, "
        "TF32 or bfloat16. Looser classes allow faster arithmetic; docs/precision.md has the numbers.",
        JUDGE,
    )
    build_s: float = _option(180.0, "Time limit of a candidate's build in seconds.", JUDGE, gt=0)
    memory_gb: float = _option(16.0, "Host memory limit of a candidate in GB.", JUDGE, gt=0)

    @field_validator("device_class", mode="before")
    @classmethod
    def _written_classes(cls, value: object) -> object:
        """Text such as `H100,H200` as its parts. In a full name (`A, 80 GB; driver 1, torch 2`) a comma with a space is a part."""
        separator = r",(?! )" if isinstance(value, str) and "; " in value else r",\s*"
        found = re.split(separator, value) if isinstance(value, str) else value
        if isinstance(found, list | tuple) and (not all(found) or len(found) > len(set(found))):
            raise ValueError("parts of the names of different kinds, such as H100,H200")
        return found or None

    @field_validator("price", mode="before")
    @classmethod
    def _written_price(cls, value: object) -> object:
        """A price that is text, such as `3/15`, as a `Price`."""
        return written_price(value) if isinstance(value, str) else value


def written_price(text: str) -> Price:
    """Parse a price such as `3/15`. Raises ValueError with the expected form."""
    given, _, answered = text.partition("/")
    try:
        return Price(input_per_million=float(given), output_per_million=float(answered))
    except ValueError:
        raise ValueError(
            "written INPUT/OUTPUT in dollars per million tokens, such as 3/15"
        ) from None


def checked_options(given: dict[str, Any]) -> RunOptions:
    """The options, with defaults for those not given. Raises UsageError for an unknown option or a wrong value."""
    try:
        return RunOptions(**given)
    except ValidationError as error:
        wrong = error.errors()[0]
        name = ".".join(map(str, wrong["loc"]))
        if wrong["type"] == "extra_forbidden":
            known = ", ".join(RunOptions.model_fields)
            raise UsageError(f"there is no option {name!r}; the options are {known}") from error
        raise UsageError(f"{name} is {said(wrong)}") from error


def said(error: Any) -> str:
    """The end of an error message: the wrong value, and what is expected instead."""
    reason = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{error['input']!r}, and should be {reason}"


def options_text() -> str:
    """All options with types, defaults and descriptions, for docstrings."""
    lines = ["Options:"]
    for name, field in RunOptions.model_fields.items():
        kind = formatannotation(field.annotation)
        text = f"{name}: {kind} = {field.default!r}. {field.description}"
        lines.append(fill(text, 100, initial_indent="    ", subsequent_indent="        "))
    return "\n".join(lines)
