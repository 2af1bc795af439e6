"""One attempt in the tree, and the choice that led to it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from stark.core.base import Frozen
from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Evaluation
from stark.core.plan import Edit, Plan

ROOT = 0
"""The id of the root: the reference itself, which is no attempt and no node."""

COMPILER = "compiler"
"""The role of an attempt that PyTorch's own compiler wrote."""

Action = Literal["improve", "debug"]
"""`improve` asks for something faster than the selected node; `debug` repairs it."""


class Selection(Frozen):
    """Which node the next attempt starts from, and what is done with it."""

    parent: int = Field(ge=ROOT)
    action: Action


class Node(Frozen):
    """One finished attempt: where it started, what was planned, written, decided and paid."""

    id: int = Field(ge=1)
    """The attempt's number in its run, counted from 1."""

    parent: int = Field(ge=ROOT)
    action: Action
    role: str
    """The role that wrote the candidate: `code`, `debug`, `solo` or `compiler`.

    Where there is none, the role whose reply was unusable, which may be `plan` too.
    """

    plan: Plan | None = None
    """The plan that the candidate carries out; a repair keeps the plan of what it repairs."""

    edits: tuple[Edit, ...] = ()
    """What became of each anchor, when the plan was an anchored edit."""

    candidate: Candidate | None = None
    evaluation: Evaluation
    duplicate_of: int | None = None
    """The earlier attempt with the same source, whose evaluation this one shares; None if the source is new."""

    @model_validator(mode="after")
    def _only_unusable_lacks_a_candidate(self) -> Node:
        if (self.candidate is None) != (self.evaluation.status == "unusable"):
            raise ValueError("a node lacks a candidate exactly when its reply was unusable")
        if self.parent >= self.id:
            raise ValueError("a node's parent came before it")
        return self

    @property
    def original(self) -> int:
        """The first attempt with the same source, which may be itself."""
        return self.duplicate_of or self.id

    @property
    def works(self) -> bool:
        """Whether the candidate is correct."""
        return isinstance(self.evaluation, Correct)

    @property
    def latency_ms(self) -> float | None:
        """The candidate's median time in milliseconds, if it is correct."""
        return self.evaluation.latency_ms if isinstance(self.evaluation, Correct) else None

    @property
    def speedup_vs_eager(self) -> float | None:
        """The paired speedup against the reference in eager mode, if it is correct."""
        if not isinstance(self.evaluation, Correct):
            return None
        return self.evaluation.speedup_vs("eager").ratio
