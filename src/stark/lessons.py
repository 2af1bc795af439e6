"""Chooses what earlier runs of a store teach a new run. No model takes part.

A lesson is an idea with its measured gain or loss, or with its failure and the cause that its repair names. Lessons come
from ended runs on other problems: never from one with the same text or name, nor from the same bench. They are chosen
once, when the run begins, and stored with its configuration, so that its prompts do not change when the store does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from stark.core.device import device_class
from stark.core.evaluation import Correct
from stark.core.lesson import Change, Lesson, Repair
from stark.core.measurement import Speedup
from stark.core.node import ROOT, Node
from stark.core.plan import first_sentence, short_name
from stark.core.reference import Reference
from stark.core.run import Run
from stark.core.standing import vs_eager
from stark.explain.evaluation import reason
from stark.languages.work import operator_shares
from stark.search.repairs import working_repair
from stark.search.tree import ROOT_SPEEDUP, Tree
from stark.store import Store

MOST = 5
"""The most lessons that a run gets."""

RUNS_COMPARED = 500
"""The latest ended runs whose problems are compared with the new one."""

RUNS_READ = 20
"""The most similar of these runs, whose attempts are read."""

LEAST_OVERLAP = 1 / 3
"""The least share of the references' time in the same operators. On recorded runs, a quarter lets a GELU learn from a
convolution with an addition."""

MAIN_SHARE = 0.1
"""The least share of the reference's time of an operator that a lesson names."""

LONGEST = 160
"""The most characters of a failure or a cause."""


class Likeness(NamedTuple):
    """How similar an earlier run is; the greatest first."""

    same_class: bool
    """Whether the same class of device judged it, not only the same kind."""

    score: float
    """The overlap of the operators' shares of the time, plus a half for the same language and for the same types."""


class _Earlier(NamedTuple):
    run: Run
    reference: Reference
    likeness: Likeness


def with_lessons(run: Run, store: Store, reference: Reference) -> Run:
    """The run with its lessons, which are chosen now unless they were before."""
    if run.config.lessons is not None:
        return run
    config = run.config.model_copy(update={"lessons": _chosen(run, store, reference)})
    return run.model_copy(update={"config": config})


def _chosen(run: Run, store: Store, reference: Reference) -> tuple[Lesson, ...]:
    """At most `MOST` lessons, the most similar runs' first, and of each problem one gain, one repair and one loss."""
    found = [
        (earlier.likeness, _worth(lesson), lesson)
        for earlier in _similar(run, store, reference)
        for lesson in lessons_of(
            earlier.run,
            earlier.reference,
            store.nodes(earlier.run.id),
            _refuted(store, earlier.run),
        )
    ]
    found.sort(key=lambda each: each[:2], reverse=True)
    chosen: list[Lesson] = []
    for _, _, lesson in found:
        if len(chosen) < MOST and not any(_repeats(lesson, each) for each in chosen):
            chosen.append(lesson)
    return tuple(_with_cause(lesson, store) for lesson in chosen)


def _repeats(lesson: Lesson, other: Lesson) -> bool:
    return lesson.idea == other.idea or (lesson.problem, lesson.sort) == (other.problem, other.sort)


def _worth(lesson: Lesson) -> tuple[int, float]:
    """Sort key: gains before repairs before losses, the larger the better."""
    size = 0.0 if isinstance(lesson.result, Repair) else abs(math.log(lesson.result.speedup.ratio))
    return ("loss", "repair", "gain").index(lesson.sort), size


def _similar(run: Run, store: Store, reference: Reference) -> list[_Earlier]:
    """The most similar of the latest runs, the most similar first."""
    benches = map(store.bench, store.benches())
    grids = [{cell.run_id for cell in bench.cells} for bench in benches]
    mates = {run.id}.union(*(grid for grid in grids if run.id in grid))
    ended = [one.id for one in store.summaries() if one.ended is not None and one.id not in mates]
    found = []
    for id in ended[:RUNS_COMPARED]:
        other, its = store.run(id), store.reference(id)
        same = (other.problem.digest == run.problem.digest, other.problem.name == run.problem.name)
        if its is None or other.is_replay or any(same):
            continue
        if likeness := _likeness(run, reference, other, its):
            found.append(_Earlier(other, its, likeness))
    return sorted(found, key=lambda each: each.likeness, reverse=True)[:RUNS_READ]


def _likeness(run: Run, ours: Reference, other: Run, its: Reference) -> Likeness | None:
    """How similar another run is; None if its device is of another kind or its reference does something else."""
    shares, others = operator_shares(ours), operator_shares(its)
    overlap = sum(min(share, others.get(name, 0.0)) for name, share in shares.items())
    if ours.device.kind != its.device.kind or overlap < LEAST_OVERLAP:
        return None
    classes = [device_class(each.device, each.versions) for each in (ours, its)]
    alike = (run.config.language == other.config.language) + (_types(ours) == _types(its))
    return Likeness(classes[0] == classes[1], round(overlap + 0.5 * alike, 6))


def lessons_of(
    run: Run, reference: Reference, nodes: Iterable[Node], refuted: Collection[int] = ()
) -> Iterator[Lesson]:
    """What a run's attempts taught, without those that failed the final check."""
    tree = Tree.replay(reference.latency_ms, nodes)
    shares = operator_shares(reference)
    for node in tree.nodes:
        if node.plan is None or node.action != "improve" or node.duplicate_of or node.id in refuted:
            continue
        fixed = None if node.works else working_repair(tree, node.id)
        change = _change(tree, node)
        if fixed is None and change is None:
            continue
        failure = short_name(reason(node.evaluation), LONGEST)
        yield Lesson(
            run=run.id,
            attempt=node.id if fixed is None else fixed.id,
            problem=run.problem.name,
            operators=tuple(name for name, share in shares.items() if share >= MAIN_SHARE),
            dtype=" and ".join(_types(reference)),
            language=node.candidate.language if node.candidate else run.config.language,
            device=reference.device.name,
            idea=node.plan.name,
            result=change or Repair(failure=failure),
        )


def _change(tree: Tree, node: Node) -> Change | None:
    """The gain or the loss against the parent, if it is certain.

    Both were measured against eager mode, so the ends of the ratio's interval are those of both intervals at their worst.
    """
    own = vs_eager(node.evaluation)
    base = ROOT_SPEEDUP if node.parent == ROOT else vs_eager(tree.node(node.parent).evaluation)
    if own is None or base is None or own.too_noisy or base.too_noisy:
        return None
    speedup = Speedup(
        reference="eager" if node.parent == ROOT else "parent",
        ratio=own.ratio / base.ratio,
        low=own.low / base.high,
        high=own.high / base.low,
    )
    certain = not speedup.too_noisy and not speedup.low <= 1 <= speedup.high
    return Change(speedup=speedup) if certain else None


def _refuted(store: Store, run: Run) -> set[int]:
    """The attempts that failed the final check."""
    return {id for id, found in store.promotions(run.id).items() if not isinstance(found, Correct)}


def _with_cause(lesson: Lesson, store: Store) -> Lesson:
    """A repair with the cause that its reply states before the code."""
    if not isinstance(lesson.result, Repair):
        return lesson
    replies = [call.reply.text for call in store.calls(lesson.run, lesson.attempt)]
    said = replies[-1].partition("```")[0] if replies else ""
    cause = short_name(first_sentence(said), LONGEST)
    return lesson.model_copy(update={"result": lesson.result.model_copy(update={"cause": cause})})


def _types(reference: Reference) -> list[str]:
    """The types of the floating-point inputs and outputs."""
    specs = (*reference.inputs, *reference.outputs)
    return sorted({spec.dtype for spec in specs if "float" in spec.dtype})
