"""One optimization of one problem: everything that was asked for, so that it can be read, resumed and repeated."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from stark.core.base import Frozen
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.core.usage import Budget

Start = Literal["reference", "compiler"]
"""What a tree begins with: the reference alone, or beside it what PyTorch's own compiler makes of it."""


Stop = Literal["budget", "auto"]
"""What ends a run: its budget alone, or also that little more is to be expected."""


WINDOW_TOKENS = 32_000
"""How long a prompt may be, unless a run asks for another limit: more than any prompt of the recorded runs was."""


class RoleModel(Frozen):
    """Which model a role asks, as `provider:name` or `exec:COMMAND`, and at what temperature."""

    model: str
    temperature: float | None = None
    """None leaves the temperature to the provider."""


class Run(Frozen):
    """The request that a tree of attempts answers."""

    id: str
    """Short and unique in its store, such as `layernorm-3f9a`."""

    created: datetime
    problem: Problem
    language: str
    strategy: str
    """A strategy's name, or its name and a policy's, such as `stark:epsilon-greedy`."""

    models: dict[str, RoleModel]
    """By role name."""

    executor: str
    """How candidates are judged: an executor's own notation, such as `local` or `folder:/shared/queue`."""

    budget: Budget
    seed: int
    parallel: int = 1
    start: Start = "reference"
    stop: Stop = "budget"
    window_tokens: int = Field(default=WINDOW_TOKENS, ge=1)
    """How long a prompt may be, by the estimate of `core.usage`. What is left out for it is kept with the call."""

    limits: Limits = Limits()
    """Of each candidate."""

    tools: Tools = Tools()
    """What correct candidates are run under as well."""

    version: str
    """Of STARK."""
