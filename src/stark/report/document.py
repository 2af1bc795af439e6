"""A run as one versioned document of plain data: what `--json` prints, and what pages and notebooks render.

Derived figures (latency, speedup, share of the roofline) are included. An unknown number is null. `docs/schema.json`
describes the document; its `version` changes when a field is removed or means something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Literal

from stark.core.base import Frozen
from stark.core.evaluation import Correct
from stark.core.node import Action
from stark.core.reference import Reference
from stark.core.run import Ended, Run
from stark.core.standing import rank_key, standing_of
from stark.core.usage import Spent
from stark.explain.run import standing_lines
from stark.report.attempt_document import AttemptDocument, attempt_document
from stark.report.evaluation_document import EvaluationDocument, evaluation_document
from stark.report.facts import run_facts
from stark.report.happened import Happened, happened
from stark.report.headline import Headline, headline
from stark.report.roofline_document import RooflineDocument, roofline_document
from stark.report.spending import Row, spending_notes, spending_rows
from stark.report.view import RunView
from stark.search.repairs import failures_repaired

LEADERS = 5
"""The number of attempts in a leaderboard."""


class Pending(Frozen):
    """An attempt in flight."""

    attempt: int
    parent: int
    action: Action
    step: str


class RunDocument(Frozen):
    """A run with its attempts in short; their sources and model calls are in `NodeDocument`."""

    version: Literal[1] = 1
    run: Run
    headline: Headline
    facts: tuple[tuple[str, str], ...]
    """The configuration, the device and the reference, as names with texts."""

    reference: Reference | None
    reference_latency_ms: float | None
    attempts: tuple[AttemptDocument, ...]
    """The finished ones, by number."""

    finished: tuple[int, ...]
    """The attempts in the order in which they finished."""

    course: tuple[int | None, ...]
    """For each of `finished`, the best attempt until then, as the search measured it. Attempts that failed the final check
    do not count."""

    pending: tuple[Pending, ...]
    ended: Ended | None
    best: int | None
    group: tuple[int, ...]
    """The best attempt, and those that the measurements cannot tell apart from it."""

    confirmed: bool
    leaders: tuple[int, ...]
    """The fastest attempts: the group first."""

    standing: tuple[str, ...]
    """What the leaders' marks mean."""

    final_checks: dict[int, EvaluationDocument]
    correct: int
    statuses: dict[str, int]
    """The number of attempts by status."""

    failures_taken_up: int
    failures_repaired: int
    spent: Spent
    roles: dict[str, Spent]
    spending: tuple[Row, ...]
    spending_notes: tuple[str, ...]
    roofline: RooflineDocument | None
    happened: tuple[Happened, ...]
    """The newest events first; not all of them."""


def run_document(view: RunView) -> RunDocument:
    """The document of a run in its current state."""
    failures, repaired = failures_repaired(view.nodes)
    standing, reference = view.standing, view.reference
    return RunDocument(
        run=view.run,
        headline=headline(view),
        facts=tuple(run_facts(view)),
        reference=reference,
        reference_latency_ms=reference and reference.latency_ms,
        attempts=tuple(
            attempt_document(node, view.finished_s.get(node.id))
            for node in sorted(view.nodes, key=lambda node: node.id)
        ),
        finished=tuple(node.id for node in view.nodes),
        course=tuple(_course(view)),
        pending=tuple(
            Pending(attempt=attempt, step=view.steps.get(attempt, "waiting"), **dict(begun))
            for attempt, begun in view.begun.items()
        ),
        ended=view.ended,
        best=standing.best,
        group=standing.group,
        confirmed=standing.confirmed,
        leaders=leaders(view),
        standing=tuple(standing_lines(standing)),
        final_checks={
            attempt: evaluation_document(found) for attempt, found in view.promotions.items()
        },
        correct=sum(node.works for node in view.nodes),
        statuses=dict(Counter(node.evaluation.status for node in view.nodes)),
        failures_taken_up=failures,
        failures_repaired=repaired,
        spent=view.spent,
        roles=view.roles,
        spending=tuple(spending_rows(view.roles)),
        spending_notes=tuple(spending_notes(view.roles)),
        roofline=reference and roofline_document(reference, view.nodes, view.tree, view.best),
        happened=happened(view),
    )


def leaders(view: RunView) -> tuple[int, ...]:
    """The fastest attempts, the best and those that cannot be told apart from it first. Refuted ones are left out."""
    refuted = _refuted(view)
    search = standing_of([node for node in view.nodes if node.id not in refuted], {})
    ranked = chain(view.standing.group, search.group, search.ranking)
    return tuple(dict.fromkeys(ranked))[:LEADERS]


def _refuted(view: RunView) -> set[int]:
    """The attempts that failed the final check."""
    return {id for id, found in view.promotions.items() if not isinstance(found, Correct)}


def _course(view: RunView) -> Iterator[int | None]:
    """The best attempt after each finished attempt."""
    refuted, best = _refuted(view), None
    for node in view.nodes:
        if isinstance(node.evaluation, Correct) and node.original not in refuted:
            key = rank_key(node.evaluation.speedup_vs("eager"), node.id)
            best = key if best is None else min(best, key)
        yield best and best[2]
