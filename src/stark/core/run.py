"""Defines a run: its identity, its configuration and why it ended.

Aliases such as `stark` are resolved to a policy and its parameters when the run is created. A resumed run therefore
keeps its policy and parameters, even if a default has changed since.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from stark.core.base import Frozen
from stark.core.judging import Limits, Tools
from stark.core.lesson import Lesson
from stark.core.problem import Problem
from stark.core.usage import Budget, Price

Stop = Literal["budget", "auto"]
"""When a run ends: at its budget, or earlier if further gains are unlikely."""

Lessons = Literal["none", "auto"]
"""Whether a run's prompts have lessons of earlier runs in the same store."""

WINDOW_TOKENS = 32_000
"""Default prompt limit in tokens, larger than any prompt of the recorded runs."""

AGENT = "agent"
"""The strategy's name in these runs, their models' name, and the role of the agent's attempts."""

RECORDED = "recorded:"
"""Prefix of a model's name in a run whose replies come from a recording."""


class RoleModel(Frozen):
    """The model of one role."""

    model: str
    """`provider:name` or `exec:COMMAND`."""

    temperature: float | None = None
    """None leaves the temperature to the provider."""

    price: Price | None = None
    """The price that the user set; None uses the provider's list price, if known."""


class Strategy(Frozen):
    """A search policy with its parameters, and a team of roles."""

    name: str
    """As the user wrote it, such as `stark` or `stark:best-first`; only a label."""

    policy: str
    """A name in `stark.search.policies.POLICIES`."""

    parameters: dict[str, int | float] = Field(default={})
    """Every parameter of the policy, defaults included."""

    team: Literal["plan-code-debug", "solo"]
    """The three roles, or one agent that does everything."""

    memory: bool
    """Whether prompts show other attempts of the tree, not only the selected node."""


class RunConfig(Frozen):
    """Everything that determines a run besides its problem."""

    strategy: Strategy
    models: dict[str, RoleModel]
    """By role name."""

    language: str
    executor: str
    """Where candidates are judged: `local`, `command:LINE`, `folder:PATH` or `ray:ADDRESS`."""

    device_class: str | None = None
    """Part of the name of the only kind of machine that may judge (see `core.device.device_class`)."""

    other_classes: tuple[str, ...] = ()
    """Parts of the names of other kinds, on which the leaders are judged again at the end (see `core.elsewhere`)."""

    budget: Budget
    seed: int
    parallel: int = Field(default=1, ge=1)
    """Attempts in flight at once."""

    stop: Stop = "budget"
    tune_seconds: float = Field(default=0.0, ge=0)
    """Seconds of the device for the variants of each attempt that is among the fastest; 0 turns tuning off."""

    window_tokens: int = Field(default=WINDOW_TOKENS, ge=1)
    """Approximate prompt limit in tokens. What a prompt shows of other attempts is trimmed to fit."""

    limits: Limits = Limits()
    tools: Tools = Tools()
    lessons: tuple[Lesson, ...] | None = ()
    """The lessons of earlier runs that prompts have; None until they are chosen, when the run begins."""


class Run(Frozen):
    """One optimization of one problem."""

    id: str
    """Short and unique in its store, such as `layernorm-3f9a`."""

    created: datetime
    problem: Problem
    config: RunConfig
    version: str
    """The version of STARK that created the run."""

    @property
    def is_replay(self) -> bool:
        """Whether the run's replies come from a recording."""
        return any(entry.model.startswith(RECORDED) for entry in self.config.models.values())


class Ended(Frozen):
    """Why a run ended."""

    kind: Literal[
        "attempts", "tokens", "dollars", "minutes", "converged", "exhausted", "refused", "recorded"
    ]
    """`attempts` to `minutes`: the budget limit that was reached; `converged`: `stop="auto"` ended it; `exhausted`: the
    policy found nothing to expand; `refused`: the judge cannot use the problem; `recorded`: a recording made before the end."""

    detail: str
