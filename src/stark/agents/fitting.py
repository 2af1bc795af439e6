"""Trims a prompt to its token limit.

Only other attempts are trimmed, never the problem, the guide, the selected source or the evidence. Trimming stops as
soon as the prompt fits:

1. Sources are left out: those of failures first, those of the run's fastest attempts last, and among equals the longest
   first.
2. Attempts are cut to one line each: the oldest first, the run's fastest attempts last.
3. Attempts are left out altogether, in the same order, and so are ideas.

A prompt that is still too long is sent anyway, since its length is only an estimate. `Fit.over` is then true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from stark.agents.briefing import Brief
from stark.agents.window import ContextWindow
from stark.core.call import Cut, Fit, Kept
from stark.core.node import Node
from stark.core.problem import Problem
from stark.core.usage import estimated_tokens, utf8_bytes
from stark.languages import Language

Write = Callable[[Brief], str]
"""Writes a role's prompt; a pure function of the brief."""


def fitted(brief: Brief, write: Write, instructions: str = "") -> tuple[str, Fit]:
    """The prompt and how it was trimmed. `instructions` are sent with the prompt and count towards the limit."""
    cuts: dict[int, Kept] = {}
    text = write(brief)
    for step in cutting_order(brief.window):
        if _tokens(instructions, text) <= brief.window_tokens:
            break
        tried = {**cuts, **step}
        shorter = write(replace(brief, cuts=tried))
        if len(shorter) < len(text):  # otherwise the step removed nothing
            cuts, text = tried, shorter
    made = tuple(Cut(attempt=attempt, kept=kept) for attempt, kept in sorted(cuts.items()))
    return text, Fit(
        limit_tokens=brief.window_tokens, tokens=_tokens(instructions, text), cuts=made
    )


def cutting_order(window: ContextWindow) -> Iterator[Mapping[int, Kept]]:
    """The trimming steps in order. Each step trims some attempts and says, by attempt id, what is kept.

    A failed attempt and its repair are cut together, since one says little without the other.
    """
    for node in sorted(window.others, key=lambda node: _source_rank(window, node)):
        yield {node.id: "outcome"}
    leaders = {leader.id: leader for leader in window.leaders}
    relatives = window.ideas + window.children + window.cousins + window.siblings
    slower = sorted((n for n in relatives if n.id not in leaders), key=lambda node: node.id)
    groups = [
        *([node] for node in slower),
        *([repair.broken, repair.fixed] for repair in window.repairs),
        *([leader] for leader in reversed(leaders.values())),
    ]
    kinds: tuple[Kept, ...] = ("line", "nothing")
    for kept in kinds:
        for group in groups:
            yield {node.id: kept for node in group}


def least_tokens(problem: Problem, language: Language) -> int:
    """Estimated tokens of the shortest prompt for code: the problem and the guide, which are never trimmed."""
    return _tokens(problem.source, language.guide)


def _source_rank(window: ContextWindow, node: Node) -> tuple[int, int, int]:
    """Sort key: the attempts in the order in which their sources are left out."""
    repairs = {id for pair in window.repaired_by.items() for id in pair}
    if node.id in {leader.id for leader in window.leaders}:
        value = 3
    elif node.id in repairs:
        value = 2
    else:
        value = 1 if node.works else 0
    length = len(node.candidate.source) if node.candidate else 0
    return value, -length, node.id


def _tokens(*texts: str) -> int:
    return estimated_tokens(sum(map(utf8_bytes, texts)))
