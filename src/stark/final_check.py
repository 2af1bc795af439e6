"""The final check: the fastest candidates are judged once more, thoroughly, before one is called a win.

The search ranks candidates by cheap measurements, and the best of many noisy measurements is partly luck. So the leaders
are measured anew, against more references and on more inputs, and only what that check measured is reported as a win.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stark.core.evaluation import Correct, Evaluation
from stark.core.node import COMPILER, Node
from stark.core.problem import Problem
from stark.core.standing import best_node, standing_of
from stark.evaluator.executors import Executor
from stark.events import CheckBegan, CheckFinished, OnEvent
from stark.search.tree import Tree
from stark.store import Store

MOST_CHECKED = 5
"""Maximum number of leaders checked per session, whether they pass or not; `torch.compile`'s kernel may be one more."""

MOST_PASSED = 2
"""Leaders that pass in a session before the check stops, though another might still be faster."""


async def check_leaders(
    run_id: str, problem: Problem, tree: Tree, store: Store, executor: Executor, emit: OnEvent
) -> None:
    """Check leaders, in ranking order, until one passes and no remaining one is expected to be faster; store each check.

    A leader that passes does not end the check if another may be faster: `MOST_PASSED` and `MOST_CHECKED` limit that.
    Leaders that an earlier session checked are not checked again, so a resumed run continues down the ranking. What
    `torch.compile` generated comes last, and is skipped if one that passed is already as fast. The limits do not apply
    to it.
    """
    checks = store.promotions(run_id)
    session: list[Evaluation] = []
    for node in _candidates(tree, checks):
        passed = sum(isinstance(evaluation, Correct) for evaluation in session)
        enough = passed >= MOST_PASSED or len(session) >= MOST_CHECKED
        if _is_beaten(node, tree, checks) or (enough and node.role != COMPILER):
            continue
        assert node.candidate is not None
        emit(CheckBegan(node))
        evaluation = await executor.evaluate(problem, node.candidate, "promote")
        store.add_promotion(run_id, node.id, evaluation)
        await store.settled()
        checks[node.id] = evaluation
        session.append(evaluation)
        emit(CheckFinished(node, evaluation))


def demote_refuted(nodes: Iterable[Node], checks: Mapping[int, Evaluation]) -> list[Node]:
    """The attempts as a resumed search sees them: those that failed the final check, and their duplicates, failed."""
    failed = {id: found for id, found in checks.items() if not isinstance(found, Correct)}
    return [
        node.model_copy(update={"evaluation": failed.get(node.original, node.evaluation)})
        for node in nodes
    ]


def _candidates(tree: Tree, checks: Mapping[int, Evaluation]) -> list[Node]:
    """What may be checked: the ranking, then the compiler's."""
    ranked = (tree.node(attempt) for attempt in standing_of(tree.nodes, {}).ranking)
    unchecked = (node for node in ranked if node.id not in checks)
    return sorted(unchecked, key=lambda node: node.role == COMPILER)


def _is_beaten(node: Node, tree: Tree, checks: Mapping[int, Evaluation]) -> bool:
    """Whether a candidate that passed is at least as fast as this one was in the search."""
    best = best_node(tree.nodes, checks) if checks else None
    return best is not None and (best.speedup_vs_eager or 0.0) >= (node.speedup_vs_eager or 0.0)
