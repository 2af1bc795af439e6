"""Defines a finished attempt (a node of the tree) and the selection that started it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from stark.core.base import Frozen
from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Evaluation
from stark.core.plan import Edit, Plan
from stark.core.tuning import Change, Tuning

ROOT = 0
"""The id of the tree's root. The root stands for the reference; it is not an attempt and has no `Node`."""

Action = Literal["improve", "debug", "tune"]
"""`improve` asks for a faster version of the selected node; `debug` asks for a repair; `tune` takes the values of the
node's constants that its tuning found, and asks nobody."""

TUNER: Literal["tune"] = "tune"
"""The role of candidates that no model wrote."""


class Selection(Frozen):
    """The node (or the root) that an attempt starts from, and what the attempt does with it."""

    parent: int = Field(ge=ROOT)
    action: Action

    @property
    def counts(self) -> bool:
        """Whether it counts as an attempt. Tuning costs none."""
        return self.action != "tune"


class Node(Frozen):
    """One finished attempt: its parent, plan, candidate and evaluation."""

    id: int = Field(ge=1)
    """The attempt's number in its run, counted from 1."""

    parent: int = Field(ge=ROOT)
    action: Action
    role: str
    """The role that wrote the candidate: `code`, `debug`, `solo`, or TUNER. Without a candidate, the role whose reply was
    unusable."""

    plan: Plan | None = None
    """The plan that the candidate implements; a repair and a tuned candidate keep the plan of their parent."""

    edits: tuple[Edit, ...] = ()
    """The replacement of each anchor, if the plan was an anchored edit."""

    candidate: Candidate | None = None
    evaluation: Evaluation
    duplicate_of: int | None = None
    """The earlier attempt with the same source, whose evaluation this one shares; None if the source is new."""

    tuning: Tuning | None = None
    """How the candidate's variants were raced; None if they were not."""

    changes: tuple[Change, ...] = ()
    """The constants of the parent that a tuned candidate changes."""

    @model_validator(mode="after")
    def _only_unusable_lacks_a_candidate(self) -> Node:
        if (self.candidate is None) != (self.evaluation.status == "unusable"):
            raise ValueError("a node has no candidate if and only if its status is 'unusable'")
        if self.parent >= self.id:
            raise ValueError("a node's parent must have a lower id")
        return self

    @property
    def original(self) -> int:
        """The first attempt with the same source, which may be this one."""
        return self.duplicate_of or self.id

    @property
    def counts(self) -> bool:
        """Whether it counts as an attempt. Tuning costs none."""
        return self.action != "tune"

    @property
    def works(self) -> bool:
        """Whether the candidate is correct."""
        return isinstance(self.evaluation, Correct)

    @property
    def latency_ms(self) -> float | None:
        """The candidate's time in milliseconds (see `Correct.latency_ms`); None unless it is correct."""
        return self.evaluation.latency_ms if isinstance(self.evaluation, Correct) else None

    @property
    def speedup_vs_eager(self) -> float | None:
        """The paired speedup over eager (see `Correct.speedup_vs`); None unless the candidate is correct."""
        return self.evaluation.speedup_vs().ratio if isinstance(self.evaluation, Correct) else None
