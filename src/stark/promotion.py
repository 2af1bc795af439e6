"""The final check: the fastest candidates judged once more with everything, before anyone hears of a win.

The search ranks candidates by measurements that are cheap, and the best of many is partly the luckiest. So the
leaders are measured anew, against more references and on more inputs, and what is reported comes from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from stark.core.evaluation import Correct, Evaluation
from stark.core.node import COMPILER, Node
from stark.core.problem import Problem
from stark.evaluator.executors import Executor
from stark.search.leaderboard import leaderboard
from stark.search.tree import Tree
from stark.store import Store

MOST_CHECKED = 2
"""How many of the fastest are checked at most, beside what PyTorch's compiler wrote."""


class Watcher(Protocol):
    """Sees the final check happen."""

    def promoting(self, node: Node) -> None:
        """A leader goes before the judge once more."""

    def promoted(self, node: Node, evaluation: Evaluation) -> None:
        """What the judge found."""


async def promote(
    run_id: str, problem: Problem, tree: Tree, store: Store, executor: Executor, watch: Watcher
) -> None:
    """Check the leaders, fastest first, until no other could be faster than one that held; each is stored.

    What PyTorch's compiler wrote comes last, if it is no leader. It is checked unless one that held is already at least as
    fast as the search measured it: so no run that began with it ends below that.
    """
    checked = store.promotions(run_id)
    leaders = leaderboard(tree, MOST_CHECKED)
    compilers = [node for node in tree.nodes if node.role == COMPILER and node.works]
    for node in (*leaders, *(node for node in compilers if node not in leaders)):
        best = winner(tree, checked)
        if best is not None and (best.assured_speedup or 0) >= (node.assured_speedup or 0):
            return
        if node.id in checked:
            continue
        assert node.candidate is not None
        watch.promoting(node)
        evaluation = await executor.evaluate(problem, node.candidate, "promote")
        store.add_promotion(run_id, node.id, evaluation)
        await store.settled()
        checked[node.id] = evaluation
        watch.promoted(node, evaluation)


def as_checked(nodes: Iterable[Node], checked: Mapping[int, Evaluation]) -> list[Node]:
    """The attempts as a run goes on with them: one that failed its final check has failed, and leads nothing any more."""
    failed = {id: found for id, found in checked.items() if not isinstance(found, Correct)}
    return [
        node.model_copy(update={"evaluation": failed[node.id]}) if node.id in failed else node
        for node in nodes
    ]


def best_so_far(tree: Tree, checked: Mapping[int, Evaluation]) -> Node | None:
    """What a run has to show: the winner once there was a final check, until then the fastest of the search."""
    return winner(tree, checked) if checked else tree.best


def winner(tree: Tree, checked: Mapping[int, Evaluation]) -> Node | None:
    """The fastest node that held in the final check, with that check's evaluation; None if none did."""
    held = [
        tree.node(attempt).model_copy(update={"evaluation": evaluation})
        for attempt, evaluation in checked.items()
        if isinstance(evaluation, Correct)
    ]
    return max(held, key=lambda node: (node.assured_speedup or 0.0, -node.id), default=None)
