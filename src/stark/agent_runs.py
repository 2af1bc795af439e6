"""The runs in which evaluations by an outside agent are stored, each as an attempt of a tree.

An agent that writes its own candidates has one such run per problem, judge and class of device. The run is configured as a search by
STARK's own team, so that `resume` with a model continues from the agent's attempts in the same tree.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from stark.configuration import configure, limits_and_tools, new_run
from stark.core.candidate import Candidate
from stark.core.errors import Held, UsageError
from stark.core.evaluation import Correct, Effort, Evaluation
from stark.core.node import ROOT, Node, Selection
from stark.core.plan import Plan, short_name
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import AGENT, Ended, Run
from stark.core.standing import is_noisy
from stark.options import RunOptions
from stark.store import Store

WAITING = Ended(kind="exhausted", detail="evaluated for an agent")

TRIES, PAUSE_S = 10, 0.05
"""How often, and how far apart, a lock is tried. Another process that stores an attempt holds it for milliseconds."""


class Kept(NamedTuple):
    """Where an evaluation is stored."""

    attempt: int
    repeated: bool
    """Whether the run had this source already."""

    evaluation: Evaluation
    """The one that counts: the attempt's first, or its first final check, that was not too noisy."""


def find_agent_run(
    store: Store, problem: Problem, asked: RunOptions, reference: Reference
) -> Run | None:
    """The newest agent's run of this problem with the same judge, limits, tools and class of device; None if there is none.

    Times on another number of cores cannot be compared. `reference` is the one measured now.
    """
    for summary in store.summaries():
        if summary.strategy == AGENT and summary.problem == problem.name:
            run = store.run(summary.id)
            judged_as = (run.config.executor, run.config.limits, run.config.tools)
            if run.problem.digest == problem.digest and judged_as == (
                asked.executor,
                *limits_and_tools(asked),
            ):
                measured = store.reference(run.id)
                if measured is None or measured.device_class == reference.device_class:
                    return run
    return None


def agent_run(
    store: Store, problem: Problem, asked: RunOptions, language: str, reference: Reference
) -> Run:
    """The agent's run of this problem, which is created if there is none.

    `language` is that of the first candidate; a search that continues the run writes in it.
    """
    if found := find_agent_run(store, problem, asked, reference):
        return found
    judging = {"executor", "precision", "build_s", "memory_gb", "counters", "sanitizer"}
    options = asked.model_dump(include=judging)
    config = configure(RunOptions(model=AGENT, language=language, attempts=1, **options))
    named = config.strategy.model_copy(update={"name": AGENT})
    config = config.model_copy(update={"strategy": named})
    run = new_run(problem, config, {summary.id for summary in store.summaries()})
    store.create_run(run)
    store.set_reference(run.id, reference)
    return run


def starting_point(store: Store, run: Run | None, parent: int) -> Selection:
    """The selection of an attempt that starts from `parent`, where 0 is the reference.

    Raises UsageError if there is no such attempt, and Held if a search works on the run.
    """
    node = None if run is None else store.node(run.id, parent)
    if parent != ROOT and (node is None or node.candidate is None):
        raise UsageError(
            f"there is no attempt {parent} with a source to start from; name an attempt of the agent's run of this "
            "problem on this kind of machine, or 0 for the reference"
        )
    if run is not None:
        with _exclusive(store, run.id):
            pass
    return Selection(parent=parent, action="improve" if node is None or node.works else "debug")


def keep(
    store: Store,
    run: Run,
    candidate: Candidate,
    evaluation: Evaluation,
    effort: Effort,
    selection: Selection,
    idea: str = "",
) -> Kept:
    """Store an evaluation as an attempt.

    A source that the run has already keeps its number, parent and idea. With the effort `promote`, the evaluation is
    also the attempt's final check, unless the attempt failed before any. The first evaluation of a source and its first
    final check count; one that was too noisy to rank the attempt is replaced by the next of the same effort.
    """
    with _exclusive(store, run.id):
        known = next((node for node in store.nodes(run.id) if _is_of(node, candidate)), None)
        repeated = known is not None
        if known is None:
            attempt = 1 + max(store.selections(run.id), default=ROOT)
            known = Node(
                id=attempt,
                parent=selection.parent,
                action=selection.action,
                role=AGENT,
                plan=_plan(idea),
                candidate=candidate,
                evaluation=evaluation,
            )
            _add(store, run, known)
        elif effort == "search" and is_noisy(known.evaluation):
            store.replace_evaluation(run.id, known.original, evaluation)
            known = known.model_copy(update={"evaluation": evaluation})
        checked = effort == "promote" and (known.works or isinstance(evaluation, Correct))
        stored = store.promotion(run.id, known.original)
        if checked and (stored is None or is_noisy(stored)):
            store.add_promotion(run.id, known.original, evaluation, anew=stored is not None)
            stored = evaluation
        counts = known.evaluation if effort == "search" or stored is None else stored
        return Kept(known.original, repeated, counts)


def _add(store: Store, run: Run, node: Node) -> None:
    """Store a node. The run's budget is what the agent has used, so a search that continues it asks for more."""
    config = store.run(run.id).config
    used = max(node.id, config.budget.attempts)
    budget = config.budget.model_copy(update={"attempts": used})
    store.reconfigure(
        run.model_copy(update={"config": config.model_copy(update={"budget": budget})})
    )
    elapsed_s = store.elapsed_s(run.id) + sum(node.evaluation.seconds.values())
    store.begin_attempt(run.id, node.id, Selection(parent=node.parent, action=node.action))
    store.add_node(run.id, node, elapsed_s)
    store.end_run(run.id, WAITING)


def _is_of(node: Node, candidate: Candidate) -> bool:
    return node.candidate is not None and node.candidate.digest == candidate.digest


def _plan(idea: str) -> Plan | None:
    """The agent's idea as a plan, so that screens and prompts show it."""
    idea = idea.strip()
    return Plan(action="rewrite", title=short_name(idea), strategy=idea) if idea else None


@contextmanager
def _exclusive(store: Store, run_id: str) -> Iterator[None]:
    """Hold the run's lock. Raises Held if another process keeps it, as a search does."""
    with ExitStack() as held:
        for left in reversed(range(TRIES)):
            try:
                held.enter_context(store.exclusive(run_id))
                break
            except Held:
                if not left:
                    raise
                time.sleep(PAUSE_S)
        yield
