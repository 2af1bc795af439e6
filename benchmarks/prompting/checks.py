"""Checks replies to recorded situations.

The role asks, parses and asks again exactly as in a run; its result is compared with what the situation expects.
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
from stark.core.candidate import Candidate
from stark.core.errors import ReplyError
from stark.core.plan import Plan
from stark.languages import language


class Check(NamedTuple):
    """One requirement, and whether the reply meets it."""

    name: str
    passed: bool
    found: str = ""
    """What was found if it does not."""


@dataclass
class Conversation:
    """All questions and replies of one situation, and the parsed result."""

    situation: Situation
    asked: list[tuple[Message, ...]] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    plan: Plan | None = None
    source: str | None = None
    fault: str = ""
    """Why the last reply is unusable; empty if it is usable."""


async def converse(
    situation: Situation, ask: Ask, window_tokens: int | None = None
) -> Conversation:
    """Let the situation's role ask and parse. Raises what `ask` raises."""
    conversation = Conversation(situation)

    async def recording_ask(
        role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        conversation.asked.append(messages)
        conversation.fits.append(fit)
        reply = await ask(role, messages, fit, more_output=more_output)
        conversation.replies.append(reply)
        return reply

    brief = situation.brief(window_tokens) if window_tokens else situation.brief()
    try:
        match situation.role:
            case "plan":
                conversation.plan = await roles.plan(recording_ask, brief)
            case "code":
                assert situation.plan is not None, "the code role carries out a plan"
                conversation.source, _ = await roles.code(
                    recording_ask, brief, situation.plan, _unbuilt
                )
            case "debug":
                conversation.source = await roles.debug(recording_ask, brief, _unbuilt)
            case "solo":
                conversation.source = await roles.solo(recording_ask, brief, _unbuilt)
    except ReplyError as fault:
        conversation.fault = str(fault)
    return conversation


async def _unbuilt(candidate: Candidate) -> str:
    """No error, since nothing is built here."""
    return ""


def checks(conversation: Conversation) -> list[Check]:
    """All checks of the situation. An unusable reply fails those that need its content."""
    expected = conversation.situation.expected
    said = _words(conversation)
    found = [
        Check("in form", not conversation.fault, conversation.fault),
        Check(
            "at once",
            len(conversation.replies) == 1 and not conversation.fault,
            _sent_back(conversation),
        ),
    ]
    if conversation.situation.role == "plan":
        if expected.action is not None:
            action = conversation.plan.action if conversation.plan else "nothing"
            found.append(Check(f"is {expected.action}", action == expected.action, action))
    else:
        refused = (
            language(conversation.situation.language).check(conversation.source)
            if conversation.source
            else "nothing"
        )
        found.append(Check("static look", refused is None, refused or ""))
    found += [Check(f"names {p}", _has(said, p), "not found") for p in expected.names]
    found += [
        Check(f"never {p}", bool(said) and not _has(said, p), "found") for p in expected.never
    ]
    if expected.changed_lines is not None:
        changed = changed_lines(conversation.situation.source or "", conversation.source or "")
        name = f"at most {expected.changed_lines} lines changed"
        passed = conversation.source is not None and 0 < changed <= expected.changed_lines
        found.append(Check(name, passed, f"{changed} are"))
    return found


def changed_lines(before: str, after: str) -> int:
    """The number of lines replaced, removed or added: the longer side of each change. Blank ends do not count."""
    old, new = before.strip().splitlines(), after.strip().splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return sum(
        max(last - first, until - start)
        for kind, first, last, start, until in matcher.get_opcodes()
        if kind != "equal"
    )


def _words(conversation: Conversation) -> str:
    """The text that patterns are searched in: a plan's words, or the candidate."""
    if conversation.plan is None:
        return conversation.source or ""
    return "\n".join(
        [conversation.plan.strategy, *(anchor.instruction for anchor in conversation.plan.anchors)]
    )


def _has(text: str, pattern: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _sent_back(conversation: Conversation) -> str:
    """Why the first reply was rejected."""
    if len(conversation.asked) < 2:
        return conversation.fault
    return conversation.asked[1][-1].text.partition("\n")[0]
