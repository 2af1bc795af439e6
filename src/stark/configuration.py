"""Turns a user's options into a run in which everything is set: models, language, search, limits and id."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from itertools import count, takewhile
from pathlib import Path
from typing import Any, TypeVar

from stark import __version__
from stark.core.base import Frozen
from stark.core.errors import OptionError, RecordingError, UsageError
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.core.run import RECORDED, RoleModel, Run, RunConfig
from stark.core.usage import Budget
from stark.evaluator.executors import RequestingExecutor, open_executor
from stark.languages import AUTO, best_for, language
from stark.languages.base import DeviceKind
from stark.options import RunOptions, checked_options
from stark.recorded import Recording
from stark.strategies import strategy, team_of

Part = TypeVar("Part", bound=Frozen)

ROLE_MODELS = ("plan_model", "code_model", "debug_model")
FIXED = ("strategy", "language", "seed", "precision", "backward", "device_class", "lessons")
"""Options that cannot change once a run exists."""


def configure(options: RunOptions) -> RunConfig:
    """The configuration that the options ask for. Raises UsageError."""
    chosen = strategy(options.strategy)
    return RunConfig(
        strategy=chosen,
        models=_role_models(options, team_of(chosen).roles),
        language=_language(options, team_of(chosen).roles),
        executor=options.executor,
        **_classes(options),
        budget=_part(Budget, options),
        seed=secrets.randbelow(10_000) if options.seed is None else options.seed,
        parallel=options.parallel,
        stop=options.stop,
        tune_seconds=options.tune_seconds,
        window_tokens=options.window_tokens,
        limits=_part(Limits, options),
        tools=_part(Tools, options),
        lessons=None if options.lessons == "auto" else (),
    )


def new_run(problem: Problem, config: RunConfig, taken: Collection[str]) -> Run:
    """A run with a new id, not in `taken`: the problem's name and four hexadecimal digits."""
    ids = (f"{problem.slug}-{secrets.token_hex(2)}" for _ in count())
    return Run(
        id=next(id for id in ids if id not in taken),
        created=datetime.now(UTC),
        problem=problem,
        config=config,
        version=__version__,
    )


def replayed_run(recording: Recording, options: RunOptions, taken: Collection[str]) -> Run:
    """A run that replays a recording; `options` configure its judge.

    Its problem, language, strategy and seed are those of the recording, and so is its precision unless the options
    set it. It has as many attempts as were recorded, or fewer if the options ask for fewer.
    """
    original = recording.run
    numbers = takewhile(recording.selections.__contains__, count(1))
    attempts = sum(recording.selections[number].counts for number in numbers)
    if attempts == 0:
        raise RecordingError("the recording lacks attempt 1, so it cannot be replayed")
    if "attempts" in options.model_fields_set:
        attempts = min(attempts, options.attempts)
    limits = _part(Limits, options)
    if "precision" not in options.model_fields_set:
        limits = limits.model_copy(update={"precision": original.config.limits.precision})
    config = original.config.model_copy(
        update={
            "models": _recorded_models(recording),
            "executor": options.executor,
            **_classes(options),
            "budget": Budget(attempts=attempts),
            "parallel": 1,
            "stop": "budget",
            "tune_seconds": 0.0,
            "limits": limits,
            "tools": _part(Tools, options),
        }
    )
    return new_run(original.problem, config, taken)


def reconfigured(run: Run, changes: Mapping[str, Any]) -> Run:
    """The run with `changes` applied. `changes` maps names of options to new values; other options stay as they are.

    Raises UsageError for an option in FIXED, and for a model or a price in a replay.
    """
    if kept := [name for name in changes if name in FIXED]:
        raise UsageError(
            f"a run keeps its {' and '.join(kept)}; start a new run to change {'it' if len(kept) == 1 else 'them'}"
        )
    asked, config = checked_options(dict(changes)), run.config
    if run.is_replay and any(name.endswith("model") or name == "price" for name in changes):
        raise UsageError(
            f"run {run.id} replays a recording and asks no model; leave out the models and the price"
        )
    roles = {
        role: _changed_model(role, entry, changes, asked) for role, entry in config.models.items()
    }
    _refuse_unused_models(asked, config.strategy.name, roles)
    parts = {
        "models": roles,
        "budget": _merged(config.budget, asked, changes),
        "limits": _merged(config.limits, asked, changes),
        "tools": _merged(config.tools, asked, changes),
    }
    changed = _merged(config, asked, changes).model_copy(update=parts)
    return run.model_copy(update={"config": changed})


def _role_models(options: RunOptions, roles: Collection[str]) -> dict[str, RoleModel]:
    """Each role's model and temperature. Raises UsageError for a role without a model."""
    _refuse_unused_models(options, options.strategy, roles)
    models = {role: getattr(options, f"{role}_model", None) or options.model for role in roles}
    lacking = [role for role, model in models.items() if model is None]
    if len(lacking) == len(roles):
        raise OptionError(
            "no model is given",
            "set {model} to one, such as anthropic:NAME, openai:NAME, google:NAME, ollama:NAME or exec:COMMAND; "
            "`stark demo` needs none",
        )
    if lacking:
        raise UsageError(
            f"no model is given for {' and '.join(lacking)}: give each of them a model, or give one model for all roles"
        )
    return {
        role: RoleModel(
            model=model, temperature=getattr(options, f"{role}_temperature"), price=options.price
        )
        for role, model in models.items()
    }


def without_unused_models(
    options: Mapping[str, Any], strategies: Iterable[str], asked: Collection[str] = ()
) -> dict[str, Any]:
    """The options without models for roles that none of the strategies has.

    A model named in `asked` stays even if unused, so that `configure` refuses it.
    """
    roles = {role for name in strategies for role in team_of(strategy(name)).roles}
    unused = {name for name in ROLE_MODELS if name.removesuffix("_model") not in roles}
    return {name: value for name, value in options.items() if name not in unused or name in asked}


def _refuse_unused_models(options: RunOptions, strategy_name: str, roles: Collection[str]) -> None:
    """Raise UsageError if a model is set for a role that the strategy does not have."""
    for name in ROLE_MODELS:
        role = name.removesuffix("_model")
        if role not in roles and getattr(options, name) is not None:
            raise UsageError(
                f"the strategy {strategy_name} has no {role} role, so leave out its model"
            )


def _language(options: RunOptions, roles: Collection[str]) -> str:
    """The language in the options, else the best one for the device of the executor. Raises UsageError."""
    if options.language == AUTO:
        if "plan" not in roles:
            raise UsageError(
                f"the strategy {options.strategy} has no planner that could choose a language, so name one"
            )
        return AUTO
    if options.language is not None:
        return language(options.language).name
    here = options.executor.startswith("local")
    return best_for(device_kind(options.executor), here=here).name


def device_kind(executor: str) -> DeviceKind:
    """The kind of device on which an executor judges, guessed without contacting a judge."""
    name, _, devices = executor.partition(":")
    if name != "local":
        return "cpu" if name == "ray" and "device=cpu" in devices else "cuda"
    if devices:
        return "cpu" if devices.strip().startswith("cpu") else "cuda"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1")
    return "cpu" if hidden or not any(Path("/dev").glob("nvidia[0-9]*")) else "cuda"


def asked_for(problem: Problem, options: RunOptions) -> Problem:
    """The problem as the options ask for it: with gradients, or as it is."""
    return problem.with_backward() if options.backward else problem


def open_judge(
    options: RunOptions, on_notice: Callable[[str], None] | None = None
) -> RequestingExecutor:
    """Open the executor that the options describe. Raises UsageError if they name several kinds of machines."""
    device_class, *others = options.device_class or (None,)
    if others:
        raise UsageError(
            "only a run judges on several kinds of machines, its leaders at the end; here, name one device class"
        )
    return open_executor(
        options.executor, *limits_and_tools(options), on_notice, device_class=device_class
    )


def limits_and_tools(options: RunOptions) -> tuple[Limits, Tools]:
    """The judge's limits and tools, as the options set them."""
    return _part(Limits, options), _part(Tools, options)


def _classes(options: RunOptions) -> dict[str, Any]:
    own, *others = options.device_class or (None,)
    return {"device_class": own, "other_classes": tuple(others)}


def _changed_model(
    role: str, entry: RoleModel, changes: Mapping[str, Any], asked: RunOptions
) -> RoleModel:
    updates: dict[str, Any] = {}
    chosen = getattr(asked, f"{role}_model", None) or asked.model
    if chosen is not None and chosen != entry.model:
        updates |= {"model": chosen, "price": None}  # the old price is that of the old model
    if f"{role}_temperature" in changes:
        updates["temperature"] = getattr(asked, f"{role}_temperature")
    if "price" in changes:
        updates["price"] = asked.price
    return entry.model_copy(update=updates)


def _part(kind: type[Part], options: RunOptions) -> Part:
    """A part of the configuration, such as the Budget. Each field gets the value of the option of the same name."""
    shared = kind.model_fields.keys() & RunOptions.model_fields
    return kind.model_validate({name: getattr(options, name) for name in shared})


def _merged(old: Part, asked: RunOptions, changes: Collection[str]) -> Part:
    """A copy of `old` that takes the fields named in `changes` from `asked`."""
    changed = {name: getattr(asked, name) for name in type(old).model_fields if name in changes}
    return old.model_copy(update=changed)


def _recorded_models(recording: Recording) -> dict[str, RoleModel]:
    """The recorded roles, each with the model names that the recorded replies report."""
    models = recording.run.config.models
    recorded = {}
    for role, entry in models.items():
        asked = (call for call in recording.calls if models[call.role].model == entry.model)
        answered = {call.reply.model for call in asked} or {entry.model}
        name = RECORDED + ", ".join(sorted(answered))
        recorded[role] = RoleModel(model=name, temperature=entry.temperature)
    return recorded
