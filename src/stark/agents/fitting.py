"""Fits a prompt to a limit of tokens: what is left out of it, in which order, and a note of that.

Only other attempts are cut, never the problem, the guide, the selected source or the evidence. First
their sources, those that teach least and then the longest first; then each is told in one line, and at
last left out, as are the lines on what led to the selected attempt: the oldest first, and the fastest
attempts of the run longest kept. A prompt that is too long even so is sent as it is, for its length is
an estimate; its `Fit` tells.

Knows no role's prompt and no model.
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
"""A role's prompt, as a pure function of its brief."""


def fitted(brief: Brief, write: Write, instructions: str = "") -> tuple[str, Fit]:
    """The prompt within the brief's limit if cutting can bring it there; `instructions` are sent with it and count."""
    cuts: dict[int, Kept] = {}
    text = write(brief)
    for step in cutting_order(brief.window):
        if _tokens(instructions, text) <= brief.window_tokens:
            break
        tried = {**cuts, **step}
        shorter = write(replace(brief, cuts=tried))
        if len(shorter) < len(text):  # else there was nothing of it to leave out
            cuts, text = tried, shorter
    made = tuple(Cut(attempt=attempt, kept=kept) for attempt, kept in sorted(cuts.items()))
    return text, Fit(
        limit_tokens=brief.window_tokens, tokens=_tokens(instructions, text), cuts=made
    )


def cutting_order(window: ContextWindow) -> Iterator[Mapping[int, Kept]]:
    """What is left out step by step, as far as needed: the attempts of a step, and what is kept of each.

    A repair is cut whole, for neither of its attempts says much without the other.
    """
    for node in sorted(window.others, key=lambda node: _source_rank(window, node)):
        yield {node.id: "outcome"}
    leaders = {leader.id: leader for leader in window.leaders}
    kin = window.history + window.children + window.siblings
    bystanders = sorted((n for n in kin if n.id not in leaders), key=lambda node: node.id)
    groups = [
        *([node] for node in bystanders),
        *([repair.broken, repair.fixed] for repair in window.repairs),
        *([leader] for leader in reversed(leaders.values())),
    ]
    kinds: tuple[Kept, ...] = ("line", "nothing")
    for kept in kinds:
        for group in groups:
            yield {node.id: kept for node in group}


def least_tokens(problem: Problem, language: Language) -> int:
    """About how long every prompt for code is at least: the problem and the guide, of which nothing is left out."""
    return _tokens(problem.source, language.guide)


def _source_rank(window: ContextWindow, node: Node) -> tuple[int, int, int]:
    """The lower, the sooner an attempt's source is left out."""
    if node.id in {leader.id for leader in window.leaders}:
        worth = 3
    elif node.id in {
        each.id for repair in window.repairs for each in (repair.broken, repair.fixed)
    }:
        worth = 2
    else:
        worth = 1 if node.works else 0
    length = len(node.candidate.source) if node.candidate else 0
    return worth, -length, node.id


def _tokens(*texts: str) -> int:
    return estimated_tokens(sum(map(utf8_bytes, texts)))
