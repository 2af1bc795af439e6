"""The roles: each turns a brief into a prompt, asks, and reads the reply.

A reply that breaks its role's rules is sent back once with the exact reason; a second one raises
ReplyError. Knows no search policy, no judge and no store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from stark.agents.anchors import mark, splice
from stark.agents.briefing import (
    Brief,
    attempts_text,
    evidence_text,
    fill,
    history_text,
    leaders_text,
    plan_text,
    start_text,
)
from stark.agents.fitting import Write, fitted
from stark.agents.replies import parse_candidate, parse_plan, parse_replacements
from stark.core.call import Fit, Message, Reply
from stark.core.errors import ReplyError
from stark.core.node import Node
from stark.core.plan import Edit, Plan
from stark.explain.device import reference_text

Ask = Callable[[str, tuple[Message, ...], Fit], Awaitable[Reply]]
"""Asks the model of a role; how the prompt was fitted is for whoever keeps it."""

Parsed = TypeVar("Parsed")


async def plan(ask: Ask, brief: Brief) -> Plan:
    """One strategy, grounded in the selected source by anchors; a rewrite at the root."""
    node = brief.window.node
    source = None if node is None else _source(node)
    return await _converse(
        ask, "plan", brief, plan_prompt, lambda text: parse_plan(text, source, node is None)
    )


async def code(ask: Ask, brief: Brief, plan: Plan) -> tuple[str, tuple[Edit, ...]]:
    """A candidate's source that carries out the plan, and what became of each anchor."""
    node = brief.window.node
    if plan.action == "rewrite" or node is None:
        write = partial(rewrite_prompt, plan)
        return await _converse(ask, "code", brief, write, parse_candidate), ()
    original = _source(node)
    return await _converse(
        ask,
        "code",
        brief,
        partial(edit_prompt, plan, mark(original, plan.anchors)),
        lambda text: splice(original, plan.anchors, parse_replacements(text, plan.anchors)),
    )


async def debug(ask: Ask, brief: Brief) -> str:
    """The repaired source of the selected, failing node."""
    return await _converse(ask, "debug", brief, debug_prompt, parse_candidate)


async def solo(ask: Ask, brief: Brief) -> str:
    """A candidate's source by one agent that plans, writes and repairs alone (the paper's baselines)."""
    return await _converse(ask, "solo", brief, solo_prompt, parse_candidate)


def plan_prompt(brief: Brief) -> str:
    """What the plan role is asked."""
    node = brief.window.node
    facts = brief.common() | {
        "reference": reference_text(brief.reference),
        "form": brief.lessons.to_plan,
        "start": start_text(
            node, numbered_lines=True, history=history_text(brief.window.history, brief.cuts)
        ),
        "children": attempts_text(brief.window.children, with_source=False, cuts=brief.cuts),
        "leaderboard": leaders_text(brief.window, with_source=False, cuts=brief.cuts),
        "reply_form": fill("plan_form_rewrite" if node is None else "plan_form_edit", {}).strip(),
    }
    return fill("plan", facts)


def rewrite_prompt(plan: Plan, brief: Brief) -> str:
    """What the code role is asked where the plan is a rewrite."""
    facts = brief.common() | {
        "strategy": plan.strategy,
        "guide": brief.lessons.to_write,
        "others": attempts_text(brief.window.others, with_source=True, cuts=brief.cuts),
        "start": start_text(brief.window.node, numbered_lines=False),
    }
    return fill("code_rewrite", facts)


def edit_prompt(plan: Plan, marked: str, brief: Brief) -> str:
    """What the code role is asked where the plan is an edit; `marked` is the source with its anchors."""
    facts = brief.common() | {
        "strategy": plan.strategy,
        "guide": brief.lessons.to_write,
        "others": attempts_text(brief.window.others, with_source=True, cuts=brief.cuts),
        "marked": marked.rstrip(),
        "anchors": ", ".join(anchor.name for anchor in plan.anchors),
    }
    return fill("code_edit", facts)


def debug_prompt(brief: Brief) -> str:
    """What the debug role is asked."""
    node = brief.window.node
    assert node is not None, "there is nothing to repair at the root"
    facts = brief.common() | {
        "evidence": evidence_text(node),
        "source": _source(node).strip(),
        "strategy": plan_text(node.plan),
        "guide": brief.lessons.to_repair,
        "others": attempts_text(
            brief.window.others, with_source=True, cuts=brief.cuts, mended=brief.window.mended
        ),
    }
    return fill("debug", facts)


def solo_prompt(brief: Brief) -> str:
    """What the solo role is asked."""
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
        "start": start_text(
            node, numbered_lines=False, history=history_text(brief.window.history, brief.cuts)
        ),
        "children": attempts_text(brief.window.children, with_source=False, cuts=brief.cuts),
        "leaderboard": leaders_text(brief.window, with_source=True, cuts=brief.cuts),
        "guide": brief.lessons.to_write,
    }
    return fill("solo", facts)


async def _converse(
    ask: Ask, role: str, brief: Brief, write: Write, parse: Callable[[str], Parsed]
) -> Parsed:
    """Ask, and on a reply that breaks the rules say so and ask once more."""
    instructions = fill("system", {})
    prompt, fit = fitted(brief, write, instructions)
    messages: tuple[Message, ...] = (
        Message(speaker="system", text=instructions),
        Message(speaker="user", text=prompt),
    )
    reply = await ask(role, messages, fit)
    try:
        return parse(reply.text)
    except ReplyError as fault:
        again = fill("again", {"fault": str(fault)})
    messages += (
        Message(speaker="assistant", text=reply.text),
        Message(speaker="user", text=again),
    )
    return parse((await ask(role, messages, fit)).text)


def _source(node: Node) -> str:
    assert node.candidate is not None, "a policy selects only nodes with a source"
    return node.candidate.source
