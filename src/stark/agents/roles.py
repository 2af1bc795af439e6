"""The roles: each turns a brief into a prompt, asks, and reads the reply.

A reply that breaks its role's rules is sent back once with the exact reason; a second one raises
ReplyError. Knows no search policy, no judge and no store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from stark.agents.anchors import mark, splice
from stark.agents.briefing import (
    Brief,
    attempts_text,
    evidence_text,
    fill,
    leaders_text,
    reference_text,
    start_text,
)
from stark.agents.replies import parse_candidate, parse_plan, parse_replacements
from stark.core.call import Message, Reply
from stark.core.errors import ReplyError
from stark.core.node import Node
from stark.core.plan import Edit, Plan

Ask = Callable[[str, tuple[Message, ...]], Awaitable[Reply]]
"""Asks the model of a role."""

Parsed = TypeVar("Parsed")

EDIT_RULE = "The source above has numbered lines."
REWRITE_RULE = (
    "There is no kernel here to edit, so this must be a rewrite: reply with `ACTION: rewrite`."
)


async def plan(ask: Ask, brief: Brief) -> Plan:
    """One strategy, grounded in the selected source by anchors; a rewrite at the root."""
    node = brief.window.node
    facts = brief.common() | {
        "reference": reference_text(brief.reference),
        "form": brief.lessons.to_plan,
        "start": start_text(node, numbered_lines=True),
        "children": attempts_text(brief.window.children, with_source=False),
        "leaderboard": leaders_text(brief.window, with_source=False),
        "action_rule": REWRITE_RULE if node is None else EDIT_RULE,
    }
    source = None if node is None else _source(node)
    return await _converse(
        ask, "plan", fill("plan", facts), lambda text: parse_plan(text, source, node is None)
    )


async def code(ask: Ask, brief: Brief, plan: Plan) -> tuple[str, tuple[Edit, ...]]:
    """A candidate's source that carries out the plan, and what became of each anchor."""
    node = brief.window.node
    facts = brief.common() | {
        "strategy": plan.strategy,
        "guide": brief.lessons.to_write,
        "others": attempts_text(brief.window.others, with_source=True),
    }
    if plan.action == "rewrite" or node is None:
        facts["start"] = start_text(node, numbered_lines=False)
        source = await _converse(ask, "code", fill("code_rewrite", facts), parse_candidate)
        return source, ()
    original = _source(node)
    facts["marked"] = mark(original, plan.anchors).rstrip()
    facts["anchors"] = ", ".join(anchor.name for anchor in plan.anchors)
    return await _converse(
        ask,
        "code",
        fill("code_edit", facts),
        lambda text: splice(original, plan.anchors, parse_replacements(text, plan.anchors)),
    )


async def debug(ask: Ask, brief: Brief) -> str:
    """The repaired source of the selected, failing node."""
    node = brief.window.node
    assert node is not None
    facts = brief.common() | {
        "evidence": evidence_text(node),
        "source": _source(node).strip(),
        "strategy": node.plan.strategy if node.plan else "None was written down.",
        "guide": brief.lessons.to_repair,
        "others": attempts_text(brief.window.others, with_source=True),
    }
    return await _converse(ask, "debug", fill("debug", facts), parse_candidate)


async def solo(ask: Ask, brief: Brief) -> str:
    """A candidate's source by one agent that plans, writes and repairs alone (the paper's baselines)."""
    node = brief.window.node
    if node is None:
        task = "You start from the problem itself."
    elif node.works:
        task = "Improve on the attempt that you start from."
    else:
        task = "The attempt that you start from failed: repair it, or do better."
    facts = brief.common() | {
        "task": task,
        "reference": reference_text(brief.reference),
        "start": start_text(node, numbered_lines=False),
        "children": attempts_text(brief.window.children, with_source=False),
        "leaderboard": leaders_text(brief.window, with_source=True),
        "guide": brief.lessons.to_write,
    }
    return await _converse(ask, "solo", fill("solo", facts), parse_candidate)


async def _converse(ask: Ask, role: str, prompt: str, parse: Callable[[str], Parsed]) -> Parsed:
    """Ask, and on a reply that breaks the rules say so and ask once more."""
    messages: tuple[Message, ...] = (
        Message(speaker="system", text=fill("system", {})),
        Message(speaker="user", text=prompt),
    )
    reply = await ask(role, messages)
    try:
        return parse(reply.text)
    except ReplyError as fault:
        again = fill("again", {"fault": str(fault)})
    messages += (
        Message(speaker="assistant", text=reply.text),
        Message(speaker="user", text=again),
    )
    return parse((await ask(role, messages)).text)


def _source(node: Node) -> str:
    assert node.candidate is not None, "a policy selects only nodes with a source"
    return node.candidate.source
