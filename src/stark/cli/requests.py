"""From what a person wrote to what the loop takes: problem, language, models, budget, run.

What can be refused without a judge is refused here or when a run begins, before anything is stored or paid.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple

from stark import __version__
from stark.cli.settings import Settings
from stark.core.errors import RecordingError, UsageError
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.core.run import WINDOW_TOKENS, RoleModel, Run, RunConfig, Start, Stop
from stark.core.usage import Budget
from stark.explain.run import RECORDED
from stark.languages import Language, best_for, language
from stark.languages.base import DeviceKind
from stark.recording import Recording
from stark.strategies import strategy, team_of

NO_MODEL = (
    "no model is given: write `--model anthropic:NAME` (or openai:, google:, openrouter:, ollama:NAME, "
    "exec:COMMAND), set STARK_MODEL, or try `make demo`, which replays a recorded run without any model"
)

USUAL_LIMITS, NO_TOOLS = Limits(), Tools()

BESIDE_REPLAY = (
    "problem",
    "--replay",
    "--executor",
    "--counters",
    "--sanitizer",
    "--kernelbench",
    "--output",
    "--store",
    "--json",
)
"""What a replay takes: all that a recording says nothing of."""


class Course(NamedTuple):
    """How a run begins and ends, and how long its prompts may be."""

    start: Start = "reference"
    stop: Stop = "budget"
    window_tokens: int = WINDOW_TOKENS


USUAL = Course()


def course(start: str | None, stop: str | None, window_tokens: int | None) -> Course:
    """The course that the flags ask for. Raises UsageError."""
    return Course(chosen_start(start), chosen_stop(stop), window_tokens or WINDOW_TOKENS)


def chosen_start(given: str | None) -> Start:
    """What `--start` asks for. Raises UsageError."""
    match given:
        case None | "reference":
            return "reference"
        case "compiler":
            return "compiler"
    raise UsageError(f"--start is {given!r}, and should be 'reference' or 'compiler'")


def chosen_stop(given: str | None) -> Stop:
    """What `--stop` asks for. Raises UsageError."""
    match given:
        case None | "budget":
            return "budget"
        case "auto":
            return "auto"
    raise UsageError(f"--stop is {given!r}, and should be 'budget' or 'auto'")


def new_run(
    problem: Problem,
    settings: Settings,
    seed: int | None,
    taken: Collection[str],
    course: Course = USUAL,
    tools: Tools = NO_TOOLS,
) -> Run:
    """A run as the settings have it; `taken` are the ids there are."""
    chosen = strategy(settings.strategy)
    return Run(
        id=new_id(problem, taken),
        created=datetime.now(UTC),
        problem=problem,
        config=RunConfig(
            strategy=chosen,
            models=role_models(settings, team_of(chosen).roles),
            language=chosen_language(settings).name,
            executor=settings.executor,
            budget=Budget(**settings.budget.model_dump()),
            seed=secrets.randbelow(10_000) if seed is None else seed,
            parallel=settings.parallel,
            start=course.start,
            stop=course.stop,
            window_tokens=course.window_tokens,
            limits=limits(settings),
            tools=tools,
        ),
        version=__version__,
    )


def replayed_run(
    recording: Recording,
    problem: Problem | None,
    settings: Settings,
    taken: Collection[str],
    tools: Tools = NO_TOOLS,
) -> Run:
    """A run that follows a recording: its problem, language, strategy, seed and attempts."""
    if recording.left_out is not None:
        if problem is None:
            raise RecordingError(
                f"the recording leaves out the text of {recording.run.problem.name}; name its file too"
            )
        recording = recording.with_problem(problem)
    original = recording.run
    if problem is not None and problem.digest != original.problem.digest:
        raise RecordingError(
            f"the recording is of {original.problem.name}, whose text is not that of the problem "
            f"{problem.name}; leave the problem out to replay it"
        )
    answered: dict[str, set[str]] = {}
    for call in recording.calls:
        asked = original.config.models[call.role].model
        answered.setdefault(asked, set()).add(call.reply.model)
    config = original.config.model_copy(
        update={
            "models": {
                role: RoleModel(
                    model=RECORDED + ", ".join(sorted(answered.get(entry.model, {entry.model}))),
                    temperature=entry.temperature,
                )
                for role, entry in original.config.models.items()
            },
            "executor": settings.executor,
            "budget": Budget(attempts=recorded_attempts(recording)),
            "parallel": 1,
            "stop": "budget",
            "limits": limits(settings),
            "tools": tools,
        }
    )
    return original.model_copy(
        update={
            "id": new_id(original.problem, taken),
            "created": datetime.now(UTC),
            "config": config,
            "version": __version__,
        }
    )


def refuse_beside_replay(options: Iterable[str]) -> None:
    """Raises UsageError for options that say what a recording says already."""
    if said := [option for option in options if option not in BESIDE_REPLAY]:
        them = "it" if len(said) == 1 else "them"
        raise UsageError(
            f"a replay follows its recording and takes no {', '.join(said)}; leave {them} out, or leave out --replay"
        )


def refuse_unused_models(flags: Mapping[str, str | None], strategies: Sequence[str]) -> None:
    """Raises UsageError for a role's model that none of the strategies would ask.

    `flags` holds what the command line gives, by role. What else sets a model may serve other strategies too.
    """
    roles = {role for name in strategies for role in team_of(strategy(name)).roles}
    unused = [role for role, model in flags.items() if model is not None and role not in roles]
    if unused:
        them = "strategy" if len(strategies) == 1 else "the strategies"
        have = "has" if len(strategies) == 1 else "have"
        options = ", ".join(f"--{role}-model" for role in unused)
        raise UsageError(
            f"{them} {', '.join(strategies)} {have} no {' or '.join(unused)} role; leave out {options}"
        )


def recorded_attempts(recording: Recording) -> int:
    """How many attempts can be followed: those before the first gap that an interruption left."""
    attempts = next(n for n in count(1) if n not in recording.selections) - 1
    if attempts == 0:
        raise RecordingError("the recording has no first attempt to follow")
    return attempts


def role_models(settings: Settings, roles: tuple[str, ...]) -> dict[str, RoleModel]:
    """Each role's model and temperature. Raises UsageError for a role that has no model."""
    own = settings.models.model_dump()
    temperatures = settings.temperatures.model_dump()
    models: dict[str, RoleModel] = {}
    for role in roles:
        spec = own.get(role) or settings.model
        if spec is None:
            some = any(own.get(other) for other in roles)
            raise UsageError(
                f"the {role} role has no model: give it one with --{role}-model, or all with --model"
                if some
                else NO_MODEL
            )
        models[role] = RoleModel(model=spec, temperature=temperatures[role])
    return models


def chosen_language(settings: Settings) -> Language:
    """The language that was asked for, else the best one for the devices that the executor reaches."""
    if settings.language is not None:
        return language(settings.language)
    return best_for(device_kind(settings.executor), here=is_local(settings.executor))


def device_kind(executor: str) -> DeviceKind:
    """What kind of device an executor's notation leads to, as far as it can be told without asking."""
    if not is_local(executor):
        return "cuda"
    rest = executor.partition(":")[2]
    if rest:
        return "cpu" if rest.strip().startswith("cpu") else "cuda"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1")
    return "cpu" if hidden or not any(Path("/dev").glob("nvidia[0-9]*")) else "cuda"


def is_local(executor: str) -> bool:
    """Whether an executor's judges run on this machine."""
    return executor.partition(":")[0] == "local"


def limits(settings: Settings, begun_with: Limits = USUAL_LIMITS) -> Limits:
    """The bounds for candidates: those that are set, the rest as a run began with them."""
    return begun_with.model_copy(update=settings.limits.model_dump(exclude_unset=True))


def new_id(problem: Problem, taken: Collection[str]) -> str:
    """The problem's name and four hexadecimal digits, as none in `taken`."""
    candidates = (f"{problem.slug}-{secrets.token_hex(2)}" for _ in count())
    return next(candidate for candidate in candidates if candidate not in taken)


def refuse_fleeting(store: str) -> None:
    """Raises UsageError for a store in memory: nothing in it could be shown or resumed when the command has ended."""
    if store.startswith("sqlite") and store_folder(store) is None:
        raise UsageError(
            f"the store {store} is in memory and would be gone when the command ends; name a file, such as "
            "sqlite:///runs.db"
        )


def store_folder(store: str) -> Path | None:
    """The folder that a store's file lies in; None for one in memory, or with a server."""
    scheme, _, rest = store.partition("://")
    path = rest.removeprefix("/").partition("?")[0]
    on_disk = scheme.startswith("sqlite") and path != "" and ":memory:" not in path
    return Path(path).parent if on_disk else None


def beside(store: str) -> Path:
    """Where results go unless told otherwise: beside the store, or in `.stark`."""
    return store_folder(store) or Path(".stark")


def kernel_path(store: str, run_id: str) -> Path:
    """Where a run's kernel goes, under a name that Python can import."""
    name = re.sub(r"\W", "_", run_id)
    return beside(store) / "kernels" / f"{'kernel_' if name[:1].isdigit() else ''}{name}.py"
