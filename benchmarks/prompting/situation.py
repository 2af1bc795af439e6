"""A recorded situation: everything in a role's prompt, a model's replies, and what a reply must satisfy.

Each is a JSON file in `situations/`.
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
    """What a reply must satisfy besides its form. Patterns are regular expressions that ignore case."""

    action: Literal["edit", "rewrite"] | None = None
    """The action of a plan."""

    names: tuple[str, ...] = ()
    """Patterns that must occur in the plan's words or in the candidate."""

    never: tuple[str, ...] = ()
    """Patterns that may not occur there."""

    changed_lines: int | None = Field(default=None, ge=1)
    """The most lines that a repair may change."""


class Situation(Frozen):
    """One question to one role."""

    about: str
    """What the situation tests, in a sentence."""

    origin: str
    """The recorded run that it comes from, or how it was made."""

    role: RoleName
    language: str
    problem: Problem
    reference: Reference
    window: ContextWindow
    plan: Plan | None = None
    """The plan that the code role implements."""

    expected: Expected = Expected()
    replies: tuple[Reply, ...] = ()
    """A model's replies: a second one if the first was rejected, none if no model was asked."""

    refusal: str = ""
    """Why the first of two replies was rejected."""

    def brief(self, window_tokens: int = WINDOW_TOKENS) -> Brief:
        """The input of the role's prompt."""
        return Brief(
            self.problem, language(self.language), self.reference, self.window, window_tokens
        )

    @cached_property
    def source(self) -> str | None:
        """The source that the role starts from; None for the root."""
        node = self.window.node
        return node.candidate.source if node is not None and node.candidate is not None else None


def situations(folder: Path = FOLDER) -> dict[str, Situation]:
    """All situations by name."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.json"))}


def read(path: Path) -> Situation:
    """The situation in a file."""
    return Situation.model_validate_json(path.read_bytes())


def write(situation: Situation, path: Path) -> None:
    """Write a situation as indented JSON, so that its diffs are readable."""
    text = situation.model_dump_json(indent=1)
    path.write_text(text + "\n", "utf-8")
