"""Teams: the roles that write a candidate for a selected node, and the order in which they work."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Protocol

from stark.agents import roles
from stark.agents.briefing import Brief
from stark.agents.roles import Ask, BuildErrors
from stark.agents.window import RoleName, lone_window, window
from stark.core.errors import PromptRefused, ReplyError
from stark.core.lesson import Lesson
from stark.core.node import ROOT, Selection
from stark.core.plan import Edit, Plan
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import WINDOW_TOKENS
from stark.core.tuning import Change
from stark.languages import Language
from stark.search.tree import Tree


@dataclass(frozen=True)
class Assignment:
    """The input of one attempt: the problem, the tree, the selected node, its number and a random generator."""

    problem: Problem
    language: Language
    reference: Reference
    tree: Tree
    selection: Selection
    attempt: int
    rng: random.Random
    lessons: tuple[Lesson, ...] = ()
    window_tokens: int = WINDOW_TOKENS
    """Prompt limit in tokens, as `core.usage` estimates them."""

    choices: tuple[Language, ...] = ()
    """The languages that a plan may choose for a rewrite; without any, everything is in `language`."""

    tunes: bool = False
    """Whether candidates may declare constants to be tuned."""

    def following(self, plan: Plan) -> Assignment:
        """The same assignment in the language that the plan chose, if it chose one."""
        chosen = (entry for entry in self.choices if entry.name == plan.language)
        return replace(self, language=next(chosen, self.language))

    def brief(self, role: RoleName, alone: bool = False) -> Brief:
        """The input of a role's prompt; `alone` hides the rest of the tree."""
        parent = self.selection.parent
        seen = (
            lone_window(self.tree, parent) if alone else window(self.tree, parent, role, self.rng)
        )
        starts = role in ("plan", "solo") and parent == ROOT and not alone
        draft = self.tree.drafts_before(self.attempt) if starts else 0
        return Brief(
            self.problem,
            self.language,
            self.reference,
            seen,
            self.window_tokens,
            draft,
            self.lessons,
            self.choices,
            tunes=self.tunes,
        )


@dataclass(frozen=True)
class Draft:
    """A team's result: a source, or the reason why there is none."""

    role: str
    source: str | None = None
    fault: str = ""
    plan: Plan | None = None
    edits: tuple[Edit, ...] = ()
    language: str | None = None
    """The source's language, if it is not the assignment's."""

    changes: tuple[Change, ...] = ()
    """The constants of the parent that have other values, if nobody wrote the source."""


class Team(Protocol):
    """Writes one candidate for an assignment."""

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that need a model."""
        ...

    async def write(self, work: Assignment, ask: Ask, build_errors: BuildErrors) -> Draft:
        """The draft. Raises what `ask` and `build_errors` raise, except PromptRefused, which becomes the `fault` of the draft."""
        ...


@dataclass(frozen=True)
class PlanCodeDebug:
    """The paper's team: a failing node goes to debug, a working one to plan and then code.

    With `memory`, each role sees other attempts too, not only the selected node.
    """

    memory: bool
    roles: tuple[str, ...] = ("plan", "code", "debug")

    async def write(self, work: Assignment, ask: Ask, build_errors: BuildErrors) -> Draft:
        """Repair the selected node, or plan and code an improvement."""
        alone = not self.memory
        draft = Draft(role="plan")
        try:
            if work.selection.action == "debug":
                draft = Draft(role="debug", plan=work.tree.node(work.selection.parent).plan)
                brief = work.brief("debug", alone)
                return replace(draft, source=await roles.debug(ask, brief, build_errors))
            plan = await roles.plan(ask, work.brief("plan", alone))
            draft = Draft(role="code", plan=plan, language=plan.language)
            brief = work.following(plan).brief("code", alone)
            source, edits = await roles.code(ask, brief, plan, build_errors)
            return replace(draft, source=source, edits=edits)
        except (ReplyError, PromptRefused) as fault:
            return replace(draft, fault=str(fault))


@dataclass(frozen=True)
class Solo:
    """One agent for everything. With `memory` it sees other attempts too, not only the selected node."""

    memory: bool
    roles: tuple[str, ...] = ("solo",)

    async def write(self, work: Assignment, ask: Ask, build_errors: BuildErrors) -> Draft:
        """Ask once for a whole candidate."""
        try:
            brief = work.brief("solo", alone=not self.memory)
            source = await roles.solo(ask, brief, build_errors)
        except (ReplyError, PromptRefused) as fault:
            return Draft(role="solo", fault=str(fault))
        return Draft(role="solo", source=source)
