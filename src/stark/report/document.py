"""A run as one versioned document of plain data: what `--json` prints, and what pages and notebooks render.

Derived figures (latency, speedup, share of the roofline) are included. An unknown number is null. `docs/schema.json`
describes the document; its `version` changes when a field is removed or means something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal

from stark.core.base import Frozen
from stark.core.evaluation import Correct, Evaluation
from stark.core.node import ROOT, Action, Node
from stark.core.reference import Reference
from stark.core.run import Ended, Run
from stark.core.standing import Standing, rank_key, standing, vs_eager
from stark.core.usage import Spent
from stark.explain.numbers import counted
from stark.explain.run import STEP_WORDS, choice_lines, standing_lines
from stark.report.attempt_document import AttemptDocument, attempt_document, replies
from stark.report.evaluation_document import EvaluationDocument, evaluation_document
from stark.report.facts import run_facts
from stark.report.happened import Happened, happened
from stark.report.headline import Headline, headline
from stark.report.roofline_document import RooflineDocument, roofline_document
from stark.report.spending import Row, run_notes, spending_rows
from stark.report.view import RunView
from stark.search.repairs import failures_repaired

LEADERS = 5
"""The number of attempts in a leaderboard."""


Checks = Mapping[int, Evaluation]
"""The final check's evaluations, by attempt."""


class Pending(Frozen):
    """An attempt in flight."""

    attempt: int
    parent: int
    action: Action
    step: str
    """A role whose model is asked, `waiting`, or `judge`: with the judge or waiting for it."""

    text: str


class ElsewhereDocument(Frozen):
    """A run on another kind of machine than its own."""

    reference_latency_ms: float
    final_checks: dict[int, EvaluationDocument]
    """Those of the leaders that had passed the final check of the run's own kind."""


class RunDocument(Frozen):
    """A run with its attempts in short; their sources and model calls are in `NodeDocument`."""

    version: Literal[1] = 1
    run: Run
    file: str | None = None
    """The name of the recording that a page read the run from; null for a run of the store."""

    headline: Headline
    facts: tuple[tuple[str, str], ...]
    """The configuration, the device and the reference, as names with texts."""

    device: str | None
    """The device and what builds and runs kernels there, on which times depend; null until the reference is measured."""

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

    level: tuple[int, ...]
    """Attempts without a final check that the search cannot tell apart from the best one, if that one passed it."""

    confirmed: bool
    leaders: tuple[int, ...]
    """The fastest attempts: the group first."""

    standing: tuple[str, ...]
    """What the leaders' marks mean, why the best one won although others looked faster, and how many are no leaders."""

    final_checks: dict[int, EvaluationDocument]
    elsewhere: dict[str, ElsewhereDocument]
    """What was measured on other kinds of machines, by kind. It ranks nothing."""

    made: int
    """The number of finished attempts. What tuning found counts neither here nor in the next two figures."""

    correct: int

    statuses: dict[str, int]
    """The number of attempts by status."""

    failures_taken_up: int
    failures_repaired: int
    spent: Spent
    roles: dict[str, Spent]
    spending: tuple[Row, ...]
    """By role; empty for a replay, which pays nothing."""

    spending_notes: tuple[str, ...]
    roofline: RooflineDocument | None
    happened: tuple[Happened, ...]
    """The newest events first; not all of them."""


def run_document(view: RunView) -> RunDocument:
    """The document of a run in its current state."""
    said = replies(view.calls)
    finished = [
        attempt_document(node, view.finished_s.get(node.id), view.reference, said.get(node.id, ""))
        for node in view.nodes
    ]
    return run_document_of(
        view, finished, view.best, said.get(view.best.id, "") if view.best else ""
    )


def run_document_of(
    view: RunView, finished: Sequence[AttemptDocument], best: Node | None, reply: str = ""
) -> RunDocument:
    """The document from the attempts in the order in which they finished; the view needs no nodes.

    `best` is the attempt with the star, with the evaluation that ranks it first; `reply` is the reply that wrote it.
    """
    failures, repaired = failures_repaired(finished)
    standing, reference = standing_among(finished, view.promotions), view.reference
    by_id = {each.attempt: each for each in finished}
    made = [each for each in finished if each.counts]
    return RunDocument(
        run=view.run,
        headline=headline(view, standing, best, len(made), reply),
        facts=tuple(run_facts(view)),
        device=reference and reference.device_class,
        reference=reference,
        reference_latency_ms=reference and reference.latency_ms,
        attempts=tuple(by_id[id] for id in sorted(by_id)),
        finished=tuple(by_id),
        course=tuple(_course(finished, view.promotions)),
        pending=tuple(
            Pending(attempt=attempt, step=step, text=STEP_WORDS.get(step, step), **dict(begun))
            for attempt, begun in view.begun.items()
            if (step := view.steps.get(attempt, "waiting"))
        ),
        ended=view.ended,
        best=standing.best,
        group=standing.group,
        level=standing.level,
        confirmed=standing.confirmed,
        leaders=leaders(finished, view.promotions),
        standing=tuple(_standing_lines(standing, finished, view.promotions)),
        final_checks={
            attempt: evaluation_document(found, reference)
            for attempt, found in view.promotions.items()
        },
        elsewhere={
            kind: ElsewhereDocument(
                reference_latency_ms=there.reference.latency_ms,
                final_checks={
                    attempt: evaluation_document(found, there.reference)
                    for attempt, found in there.checks.items()
                },
            )
            for kind, there in view.elsewhere.items()
        },
        made=len(made),
        correct=sum(each.works for each in made),
        statuses=dict(Counter(each.status for each in made)),
        failures_taken_up=failures,
        failures_repaired=repaired,
        spent=view.spent,
        roles=view.roles,
        spending=() if view.run.is_replay else tuple(spending_rows(view.roles)),
        spending_notes=tuple(run_notes(view)),
        roofline=reference and _roofline(reference, by_id, None if best is None else best.id),
        happened=happened(view, finished),
    )


def standing_among(finished: Iterable[AttemptDocument], checks: Checks) -> Standing:
    """The ranking of the attempts."""
    speedups = {
        each.attempt: each.speedups.get("eager") for each in finished if each.duplicate_of is None
    }
    return standing(speedups, {attempt: vs_eager(found) for attempt, found in checks.items()})


def _standing_lines(
    standing: Standing, finished: Sequence[AttemptDocument], checks: Checks
) -> Iterator[str]:
    """What the leaders' marks mean, why the best attempt leads if others looked faster, and how many are not listed."""
    search = {
        each.attempt: found
        for each in finished
        if each.duplicate_of is None and (found := each.speedups.get("eager"))
    }
    checked = {id: vs_eager(each) for id, each in checks.items()}
    where = checked if standing.confirmed else search
    yield from standing_lines(standing, where)
    yield from choice_lines(standing, search, checked)
    listed = {*leaders(finished, checks), *_refuted(checks)}
    if left := [found for id, found in search.items() if id not in listed]:
        noisy = sum(found.too_noisy for found in left)
        doubt = f", {noisy} of them too noisy to rank" if noisy else ""
        yield f"{counted(len(left), 'more correct attempt')} only in the tree{doubt}"


def leaders(finished: Sequence[AttemptDocument], checks: Checks) -> tuple[int, ...]:
    """The fastest attempts, the best and those that cannot be told apart from it first. Refuted ones are left out."""
    refuted = _refuted(checks)
    search = standing_among([each for each in finished if each.attempt not in refuted], {})
    ranked = chain(standing_among(finished, checks).group, search.group, search.ranking)
    return tuple(dict.fromkeys(ranked))[:LEADERS]


def _refuted(checks: Checks) -> set[int]:
    """The attempts that failed the final check."""
    return {id for id, found in checks.items() if not isinstance(found, Correct)}


def _course(finished: Iterable[AttemptDocument], checks: Checks) -> Iterator[int | None]:
    """The best attempt after each finished attempt."""
    refuted, best = _refuted(checks), None
    for each in finished:
        speedup = each.speedups.get("eager")
        if speedup is not None and (each.duplicate_of or each.attempt) not in refuted:
            key = rank_key(speedup, each.attempt)
            best = key if best is None else min(best, key)
        yield best and best[2]


def _roofline(
    reference: Reference, attempts: Mapping[int, AttemptDocument], best: int | None
) -> RooflineDocument | None:
    """The roofline with every distinct kernel, as the search measured it."""
    path: list[int] = []
    if best is not None:
        path, above = [best], attempts[best].parent
        while above != ROOT:
            path.append(above)
            above = attempts[above].parent
        path.append(ROOT)
    points = (each.point for each in attempts.values() if each.duplicate_of is None)
    return roofline_document(reference, filter(None, points), tuple(reversed(path)))
