"""The roles: each turns a brief into a prompt, asks a model and parses the reply.

If a reply breaks its role's rules or was cut off, the model is asked once more, with the reason. If the second reply
fails too, ReplyError is raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from stark.agents.anchors import mark, splice
from stark.agents.briefing import (
    Brief,
    attempts_text,
    choices_text,
    evidence_text,
    fill,
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

Parsed = TypeVar("Parsed")


class Ask(Protocol):
    """Asks the model of a role."""

    async def __call__(
        self, role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        """The reply. `more_output` allows twice the usual output limit; `fit` says how the prompt was trimmed."""
        ...


async def plan(ask: Ask, brief: Brief) -> Plan:
    """One strategy: an edit with anchors in the selected source, or a rewrite. At the root it is always a rewrite."""
    node = brief.window.node
    source = None if node is None else _source(node)
    names = [entry.name for entry in brief.choices]
    return await _converse(
        ask, "plan", brief, plan_prompt, lambda text: parse_plan(text, source, names)
    )


async def code(ask: Ask, brief: Brief, plan: Plan) -> tuple[str, tuple[Edit, ...]]:
    """The source of a candidate that carries out the plan, and the edit at each anchor."""
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
    """A candidate's source, from one agent that plans, writes and repairs alone, as in the paper's baselines."""
    return await _converse(ask, "solo", brief, solo_prompt, parse_candidate)


def plan_prompt(brief: Brief) -> str:
    """The prompt of the plan role."""
    node, form = brief.window.node, brief.lessons.to_plan
    reply_form = fill("plan_form_rewrite" if node is None else "plan_form_edit", {}).strip()
    common = brief.common()
    if brief.choices:
        form = f"{form}\n\n{choices_text(brief.choices)}"
        reply_form = f"{reply_form}\n\n{fill('plan_language', {}).strip()}"
        common["language"] = "the language that you choose" if node is None else common["language"]
    facts = common | {
        "reference": reference_text(brief.reference),
        "form": form,
        "start": start_text(brief, numbered_lines=True),
        "children": attempts_text(brief, brief.window.children, with_source=False),
        "leaderboard": leaders_text(brief, with_source=False),
        "reply_form": reply_form,
    }
    return fill("plan", facts)


def rewrite_prompt(plan: Plan, brief: Brief) -> str:
    """The prompt of the code role for a rewrite."""
    facts = brief.common() | {
        "strategy": plan.strategy,
        "guide": brief.lessons.to_write,
        "others": attempts_text(brief, brief.window.others, with_source=True),
        "start": start_text(brief, numbered_lines=False),
    }
    return fill("code_rewrite", facts)


def edit_prompt(plan: Plan, marked: str, brief: Brief) -> str:
    """The prompt of the code role for an edit; `marked` is the source with its anchors."""
    facts = brief.common() | {
        "strategy": plan.strategy,
        "guide": brief.lessons.to_write,
        "others": attempts_text(brief, brief.window.others, with_source=True),
        "marked": marked.rstrip(),
        "anchors": ", ".join(anchor.name for anchor in plan.anchors),
    }
    return fill("code_edit", facts)


def debug_prompt(brief: Brief) -> str:
    """The prompt of the debug role."""
    node = brief.window.node
    assert node is not None, "there is nothing to repair at the root"
    facts = brief.common() | {
        "evidence": evidence_text(node),
        "source": _source(node).strip(),
        "strategy": plan_text(node.plan),
        "guide": brief.lessons.to_repair,
        "others": attempts_text(brief, brief.window.others, with_source=True),
    }
    return fill("debug", facts)


def solo_prompt(brief: Brief) -> str:
    """The prompt of the solo role."""
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
        "start": start_text(brief, numbered_lines=False),
        "children": attempts_text(brief, brief.window.children, with_source=False),
        "leaderboard": leaders_text(brief, with_source=True),
        "guide": brief.lessons.to_write,
    }
    return fill("solo", facts)


async def _converse(
    ask: Ask, role: str, brief: Brief, write: Write, parse: Callable[[str], Parsed]
) -> Parsed:
    """Ask, and ask once more if the reply was cut off or breaks the rules."""
    instructions = fill("system", {})
    prompt, fit = fitted(brief, write, instructions)
    messages = (
        Message(speaker="system", text=instructions),
        *(Message(speaker="user", text=part) for part in _STABLE_END.split(prompt)),
    )
    reply = await ask(role, messages, fit, more_output=False)
    try:
        return _parsed(reply, parse)
    except ReplyError as fault:
        again = fill("cut_off", {}) if reply.truncated else fill("again", {"fault": str(fault)})
    # Providers refuse an empty message, and a reply may be cut off before its first word.
    said = reply.text if reply.text.strip() else "(no text)"
    messages += (Message(speaker="assistant", text=said), Message(speaker="user", text=again))
    return _parsed(await ask(role, messages, fit, more_output=reply.truncated), parse)


_STABLE_END = re.compile(r"^<!-- .* -->\n+", re.MULTILINE)
"""Matches the line that ends the stable part of a prompt file. The text above this line is the same in all prompts of a
role in a run. The texts above and below become two messages, so that providers can cache the first message."""


def _parsed(reply: Reply, parse: Callable[[str], Parsed]) -> Parsed:
    if reply.truncated:
        raise ReplyError(
            "The model's output limit cut the reply off. Use a model that has a higher limit or that "
            "replies more briefly."
        )
    return parse(reply.text)


def _source(node: Node) -> str:
    assert node.candidate is not None, "a policy selects only nodes with a source"
    return node.candidate.source
