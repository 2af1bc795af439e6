"""The roles: each turns a brief into a prompt, asks a model and parses the reply.

If a reply breaks its role's rules or was cut off, the model is asked once more, with the reason. If the second reply
fails too, ReplyError is raised. A candidate that does not build goes back once, too, with the compiler's errors; if no
usable reply follows, the candidate stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from stark.agents.anchors import mark, splice
from stark.agents.briefing import (
    Brief,
    attempts_text,
    choices_text,
    chosen_text,
    evidence_text,
    fill,
    guide_text,
    leaders_text,
    lessons_text,
    plan_text,
    start_text,
    techniques_text,
    traps_text,
    tried_text,
)
from stark.agents.fitting import Write, fitted
from stark.agents.replies import parse_candidate, parse_plan, parse_replacements
from stark.core.call import Fit, Message, Reply
from stark.core.candidate import Candidate
from stark.core.errors import PromptRefused, ReplyError
from stark.core.node import Node
from stark.core.plan import Edit, Plan
from stark.explain.device import reference_text

Parsed = TypeVar("Parsed")
Written = tuple[str, tuple[Edit, ...]]
"""A candidate's source, and the edit at each anchor."""


class Ask(Protocol):
    """Asks the model of a role."""

    async def __call__(
        self, role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        """The reply. `more_output` allows twice the usual output limit; `fit` says how the prompt was trimmed."""
        ...


BuildErrors = Callable[[Candidate], Awaitable[str]]
"""Why the judge cannot build a candidate, or an empty text if it can or if the candidate must not go back to its writer."""


async def plan(ask: Ask, brief: Brief) -> Plan:
    """One strategy: an edit with anchors in the selected source, or a rewrite. At the root it is always a rewrite."""
    node = brief.window.node
    source = None if node is None else _source(node)
    names = [entry.name for entry in brief.choices]
    talk = _Conversation(ask, "plan", brief, plan_prompt)
    _, found = await talk.parsed(lambda text: parse_plan(text, source, names))
    return found


async def code(ask: Ask, brief: Brief, plan: Plan, build_errors: BuildErrors) -> Written:
    """The source of a candidate that carries out the plan, and the edit at each anchor."""
    node = brief.window.node
    if plan.action == "rewrite" or node is None:
        write = partial(rewrite_prompt, plan)
        return await _candidate(ask, "code", brief, write, _whole, build_errors)
    original = _source(node)
    return await _candidate(
        ask,
        "code",
        brief,
        partial(edit_prompt, plan, mark(original, plan.anchors)),
        lambda text: splice(original, plan.anchors, parse_replacements(text, plan.anchors)),
        build_errors,
    )


async def debug(ask: Ask, brief: Brief, build_errors: BuildErrors) -> str:
    """The repaired source of the selected, failing node."""
    source, _ = await _candidate(ask, "debug", brief, debug_prompt, _whole, build_errors)
    return source


async def solo(ask: Ask, brief: Brief, build_errors: BuildErrors) -> str:
    """A candidate's source, from one agent that plans, writes and repairs alone, as in the paper's baselines."""
    source, _ = await _candidate(ask, "solo", brief, solo_prompt, _whole, build_errors)
    return source


def plan_prompt(brief: Brief) -> str:
    """The prompt of the plan role."""
    node, form = brief.window.node, brief.guidance.to_plan
    reply_form = fill("plan_form_rewrite" if node is None else "plan_form_edit", {}).strip()
    common = brief.common()
    if brief.choices:
        form = f"{form}\n\n{choices_text(brief)}"
        reply_form = f"{reply_form}\n\n{fill('plan_language', {}).strip()}"
        common["language"] = "the language that you choose" if node is None else common["language"]
    facts = common | {
        "reference": reference_text(brief.reference),
        "form": form,
        "start": start_text(brief, numbered_lines=True),
        "tried": tried_text(brief),
        "lessons": lessons_text(brief),
        "leaderboard": leaders_text(brief, with_source=False),
        "reply_form": reply_form,
    }
    return fill("plan", facts)


def rewrite_prompt(plan: Plan, brief: Brief) -> str:
    """The prompt of the code role for a rewrite."""
    facts = brief.common() | {
        "strategy": plan.strategy,
        "guide": guide_text(brief),
        "techniques": chosen_text(brief, plan),
        "others": attempts_text(brief, brief.window.others, with_source=True),
        "start": start_text(brief, numbered_lines=False),
    }
    return fill("code_rewrite", facts)


def edit_prompt(plan: Plan, marked: str, brief: Brief) -> str:
    """The prompt of the code role for an edit; `marked` is the source with its anchors."""
    facts = brief.common() | {
        "strategy": plan.strategy,
        "guide": guide_text(brief),
        "techniques": chosen_text(brief, plan),
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
        "guide": guide_text(brief),
        "traps": traps_text(brief, node.plan),
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
        "tried": tried_text(brief),
        "lessons": lessons_text(brief),
        "leaderboard": leaders_text(brief, with_source=True),
        "guide": f"{guide_text(brief)}\n\n{techniques_text(brief)}".strip(),
    }
    return fill("solo", facts)


async def _candidate(
    ask: Ask,
    role: str,
    brief: Brief,
    write: Write,
    parse: Callable[[str], Written],
    build_errors: BuildErrors,
) -> Written:
    """What the role writes. A source that does not build goes back once."""
    talk = _Conversation(ask, role, brief, write)
    reply, written = await talk.parsed(parse)
    candidate = Candidate(language=brief.language.name, source=written[0])
    errors = await build_errors(candidate)
    if not errors:
        return written
    try:
        return _parsed(await talk.again(reply, fill("unbuilt", {"errors": errors})), parse)
    except (ReplyError, PromptRefused):
        return written


def _whole(reply: str) -> Written:
    return parse_candidate(reply), ()


class _Conversation:
    """One role's questions in one attempt, each of which repeats those before it."""

    def __init__(self, ask: Ask, role: str, brief: Brief, write: Write) -> None:
        self._ask, self._role = ask, role
        instructions = fill("system", {})
        prompt, self._fit = fitted(brief, write, instructions)
        self._messages = (
            Message(speaker="system", text=instructions),
            *(Message(speaker="user", text=part) for part in _STABLE_END.split(prompt)),
        )

    async def parsed(self, parse: Callable[[str], Parsed]) -> tuple[Reply, Parsed]:
        """Ask, and ask once more if the reply was cut off or breaks the rules. The reply, and what it says."""
        reply = await self._ask(self._role, self._messages, self._fit, more_output=False)
        try:
            return reply, _parsed(reply, parse)
        except ReplyError as fault:
            why = fill("cut_off", {}) if reply.truncated else fill("again", {"fault": str(fault)})
        reply = await self.again(reply, why)
        return reply, _parsed(reply, parse)

    async def again(self, reply: Reply, why: str) -> Reply:
        """Send a reply back with the reason; the next reply."""
        # Providers refuse an empty message, and a reply may be cut off before its first word.
        said = reply.text if reply.text.strip() else "(no text)"
        self._messages += (
            Message(speaker="assistant", text=said),
            Message(speaker="user", text=why),
        )
        return await self._ask(self._role, self._messages, self._fit, more_output=reply.truncated)


_STABLE_END = re.compile(r"^<!-- .* -->\n+", re.MULTILINE)
"""Matches the line that ends the stable part of a prompt file. The text above this line is the same in all prompts of a
role in a run, apart from the guide's worked example, which some leave out. The texts above and below become two
messages, so that providers can cache the first message."""


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
