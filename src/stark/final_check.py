"""The final check: the fastest candidates are judged once more, thoroughly, before a kernel is written.

The search ranks candidates by cheap measurements, and the best of many noisy measurements is partly luck. So the
fastest candidates, the leaders, are judged again: on more inputs and against more references. Only a candidate that
passes is written to a file, with the speedup that the check measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stark.core.evaluation import Correct, Evaluation
from stark.core.node import Node
from stark.core.problem import Problem
from stark.core.standing import best_node, standing_of
from stark.evaluator.executors import Executor
from stark.events import CheckBegan, CheckFinished, OnEvent
from stark.search.tree import Tree
from stark.store import Store

MOST_CHECKED = 5
"""Maximum number of leaders checked per session, which is one process's work on a run."""

MOST_PASSED = 2
"""A session stops checking when this many leaders have passed, even if an unchecked leader might be faster."""


async def check_leaders(
    run_id: str, problem: Problem, tree: Tree, store: Store, executor: Executor, emit: OnEvent
) -> None:
    """Check the leaders in ranking order, until one leader has passed and no unchecked leader seems faster.

    `MOST_PASSED` and `MOST_CHECKED` bound the number of checks. Each result is stored. Leaders that an earlier session
    checked are not checked again, so a resumed run continues down the ranking. After a tuned attempt, the one that was
    tuned is checked in any case: then tuning cannot end below its start.
    """
    checks = await store.retried(store.promotions, run_id)
    session: list[Evaluation] = []
    for node in _candidates(tree, checks):
        starts = any(not child.counts and child.id in checks for child in tree.children(node.id))
        passed = sum(isinstance(evaluation, Correct) for evaluation in session)
        enough = passed >= MOST_PASSED or len(session) >= MOST_CHECKED
        if not starts and (enough or _is_beaten(node, tree, checks)):
            continue
        assert node.candidate is not None
        emit(CheckBegan(node))
        evaluation = await executor.evaluate(problem, node.candidate, "promote")
        await store.retried(store.add_promotion, run_id, node.id, evaluation)
        checks[node.id] = evaluation
        session.append(evaluation)
        emit(CheckFinished(node, evaluation))


def demote_refuted(nodes: Iterable[Node], checks: Mapping[int, Evaluation]) -> list[Node]:
    """All attempts, for a resumed search. Those that failed the final check, and their duplicates, are marked as failed."""
    failed = {id: found for id, found in checks.items() if not isinstance(found, Correct)}
    return [
        node.model_copy(update={"evaluation": failed.get(node.original, node.evaluation)})
        for node in nodes
    ]


def _candidates(tree: Tree, checks: Mapping[int, Evaluation]) -> list[Node]:
    """The unchecked attempts in ranking order, but after a tuned attempt the one that was tuned."""
    ranked = [tree.node(attempt) for attempt in standing_of(tree.nodes, {}).ranking]
    starts = {node.id: [] if node.counts else [tree.node(node.parent)] for node in ranked}
    ordered = {each.id: each for node in ranked for each in (node, *starts[node.id])}
    return [node for node in ordered.values() if node.id not in checks]


def _is_beaten(node: Node, tree: Tree, checks: Mapping[int, Evaluation]) -> bool:
    """Whether a candidate that passed the final check is at least as fast as `node` was in the search."""
    confirmed = standing_of(tree.nodes, checks).confirmed
    best = best_node(tree.nodes, checks) if confirmed else None
    return best is not None and (best.speedup_vs_eager or 0.0) >= (node.speedup_vs_eager or 0.0)
