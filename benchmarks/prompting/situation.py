"""A recorded situation: all that a role was told, what a model replied, and what must hold of a reply.

One JSON file each, in `situations/`. Knows no model and makes no check.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from stark.agents.briefing import Brief
from stark.agents.window import ContextWindow, RoleName
from stark.core.base import Frozen
from stark.core.call import Reply
from stark.core.plan import Plan
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import WINDOW_TOKENS
from stark.languages import language

FOLDER = Path(__file__).parent / "situations"


class Expected(Frozen):
    """What must hold of a reply besides its form. Patterns are regular expressions, in any case."""

    action: Literal["edit", "rewrite"] | None = None
    """Of a plan."""

    names: tuple[str, ...] = ()
    """Each must be found: in a plan's words, or in the candidate."""

    never: tuple[str, ...] = ()
    """None may be found there."""

    changed_lines: int | None = Field(default=None, ge=1)
    """A repair changes at most so many lines of what it repairs."""


class Situation(Frozen):
    """One question to one role."""

    about: str
    """What is to be seen here, in a sentence."""

    origin: str
    """Where it comes from."""

    role: RoleName
    language: str
    problem: Problem
    reference: Reference
    window: ContextWindow
    plan: Plan | None = None
    """What the code role carries out."""

    expected: Expected = Expected()
    replies: tuple[Reply, ...] = ()
    """What a model answered; the second one after the first was sent back. None where nobody was asked."""

    refusal: str = ""
    """Why the first of two replies was sent back."""

    def brief(self, window_tokens: int = WINDOW_TOKENS) -> Brief:
        """What the role is told."""
        taught = language(self.language)
        return Brief(self.problem, taught, self.reference, self.window, window_tokens)

    @cached_property
    def source(self) -> str | None:
        """The source that the role starts from; None at the root."""
        node = self.window.node
        return node.candidate.source if node is not None and node.candidate is not None else None


def situations(folder: Path = FOLDER) -> dict[str, Situation]:
    """All of them, by name."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.json"))}


def read(path: Path) -> Situation:
    """The situation in a file."""
    return Situation.model_validate_json(path.read_bytes())


def write(situation: Situation, path: Path) -> None:
    """As JSON whose changes can be read."""
    text = situation.model_dump_json(indent=1)
    path.write_text(text + "\n", "utf-8")
