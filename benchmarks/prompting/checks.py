"""Whether what comes back in a situation is what the program and its user need.

The role itself asks, reads and sends back, exactly as in a run; here its result is held against what
is expected. Knows no model and no file.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from prompting.situation import Situation
from stark.agents import roles
from stark.agents.roles import Ask
from stark.core.call import Fit, Message, Reply
from stark.core.errors import ReplyError
from stark.core.plan import Plan
from stark.languages import language


class Check(NamedTuple):
    """One thing that must hold, and whether it does."""

    name: str
    passed: bool
    found: str = ""
    """What was found where it does not."""


@dataclass
class Conversation:
    """Everything that was asked and answered in a situation, and what came of it."""

    situation: Situation
    asked: list[tuple[Message, ...]] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    plan: Plan | None = None
    source: str | None = None
    fault: str = ""
    """Why the last reply cannot be used; empty if it can."""


async def converse(
    situation: Situation, ask: Ask, window_tokens: int | None = None
) -> Conversation:
    """Have the situation's role ask and read. Raises what asking raises."""
    held = Conversation(situation)

    async def listened(role: str, messages: tuple[Message, ...], fit: Fit) -> Reply:
        held.asked.append(messages)
        held.fits.append(fit)
        reply = await ask(role, messages, fit)
        held.replies.append(reply)
        return reply

    brief = situation.brief(window_tokens) if window_tokens else situation.brief()
    try:
        match situation.role:
            case "plan":
                held.plan = await roles.plan(listened, brief)
            case "code":
                assert situation.plan is not None, "the code role carries out a plan"
                held.source, _ = await roles.code(listened, brief, situation.plan)
            case "debug":
                held.source = await roles.debug(listened, brief)
            case "solo":
                held.source = await roles.solo(listened, brief)
    except ReplyError as fault:
        held.fault = str(fault)
    return held


def checks(held: Conversation) -> list[Check]:
    """Everything that is to be checked here. What cannot be read fails them all."""
    expected = held.situation.expected
    said = _words(held)
    found = [
        Check("in form", not held.fault, held.fault),
        Check("at once", len(held.replies) == 1 and not held.fault, _sent_back(held)),
    ]
    if held.situation.role == "plan":
        if expected.action is not None:
            action = held.plan.action if held.plan else "nothing"
            found.append(Check(f"is {expected.action}", action == expected.action, action))
    else:
        refused = language(held.situation.language).check(held.source) if held.source else "nothing"
        found.append(Check("static look", refused is None, refused or ""))
    found += [Check(f"names {p}", _has(said, p), "not found") for p in expected.names]
    found += [
        Check(f"never {p}", bool(said) and not _has(said, p), "found") for p in expected.never
    ]
    if expected.changed_lines is not None:
        changed = changed_lines(held.situation.source or "", held.source or "")
        name = f"at most {expected.changed_lines} lines changed"
        passed = held.source is not None and 0 < changed <= expected.changed_lines
        found.append(Check(name, passed, f"{changed} are"))
    return found


def changed_lines(before: str, after: str) -> int:
    """How many lines were replaced, taken out or put in: of each changed place the longer side. Blank ends do not count."""
    old, new = before.strip().splitlines(), after.strip().splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return sum(
        max(last - first, until - start)
        for kind, first, last, start, until in matcher.get_opcodes()
        if kind != "equal"
    )


def _words(held: Conversation) -> str:
    """What patterns are looked for in: a plan's words, or the candidate."""
    if held.plan is None:
        return held.source or ""
    return "\n".join([held.plan.strategy, *(anchor.instruction for anchor in held.plan.anchors)])


def _has(text: str, pattern: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _sent_back(held: Conversation) -> str:
    """Why the first reply was sent back."""
    if len(held.asked) < 2:
        return held.fault
    return held.asked[1][-1].text.partition("\n")[0]
