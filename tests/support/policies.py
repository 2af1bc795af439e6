"""Checks that a search policy keeps its contract.

Each rule takes a policy and a seed, and raises AssertionError if the policy breaks it. The rules cover what callers rely
on, not which nodes a policy prefers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from stark.core.evaluation import STATUSES
from stark.core.node import ROOT
from stark.search.policies.base import Policy
from stark.search.tree import Tree
from support.nodes import ANY_STATUS, EAGER_MS, outcome, random_tree

Rule = Callable[[Policy, int], None]


def selects_what_can_be_started(policy: Policy, seed: int) -> None:
    """Selects only nodes that an attempt can start from: debugs failing ones, improves correct ones."""
    for tree in _trees(seed):
        selection = policy.select(tree, random.Random(seed))
        if selection is None:
            continue
        expected = "improve" if tree.works(selection.parent) else "debug"
        assert expected == selection.action, f"{selection} has the wrong action for its node"
        assert tree.is_start(selection.parent), f"{selection} is no attempt to start from"
        tree.begin(tree.next_attempt, selection)


def never_starves(policy: Policy, seed: int) -> None:
    """Always selects something if nothing is in flight."""
    for tree in _trees(seed):
        if not tree.pending:
            assert policy.select(tree, random.Random(seed)) is not None, (
                "no selection with nothing in flight"
            )


def changes_nothing(policy: Policy, seed: int) -> None:
    """Does not change the tree."""
    for tree in _trees(seed):
        before = view(tree)
        policy.select(tree, random.Random(seed))
        assert before == view(tree), "the tree changed"


def depends_on_tree_and_seed_alone(policy: Policy, seed: int) -> None:
    """Selects the same for the same tree and seed, whatever was selected in between."""
    trees = list(_trees(seed))
    first = [policy.select(tree, random.Random(seed)) for tree in trees]
    again = [policy.select(tree, random.Random(seed)) for tree in reversed(trees)]
    assert first == again[::-1], "another selection for the same tree and seed"


def survives_replay(policy: Policy, seed: int) -> None:
    """Selects the same in a tree rebuilt from its nodes, as when a run resumes."""
    for attempts in (1, 5, 20):
        grown = _run(policy, attempts, ANY_STATUS, random.Random(seed))
        rebuilt = Tree.replay(grown.root_latency_ms, grown.nodes)
        for attempt, selection in grown.pending.items():
            rebuilt.begin(attempt, selection)
        expected = policy.select(grown, random.Random(seed))
        assert expected == policy.select(rebuilt, random.Random(seed)), (
            "another selection after a replay"
        )


def carries_a_run_through(policy: Policy, seed: int) -> None:
    """Completes 40 attempts for mixed outcomes, and when all have the same status."""
    for statuses in [ANY_STATUS, *((status,) for status in STATUSES)]:
        _run(policy, 40, statuses, random.Random(seed))


CONTRACT: tuple[Rule, ...] = (
    selects_what_can_be_started,
    never_starves,
    changes_nothing,
    depends_on_tree_and_seed_alone,
    survives_replay,
    carries_a_run_through,
)


def view(tree: Tree) -> dict[str, object]:
    """The observable state of a tree, for comparison."""
    ids = [ROOT, *(node.id for node in tree.nodes)]
    return {
        "nodes": tree.nodes,
        "pending": dict(tree.pending),
        "next attempt": tree.next_attempt,
        "leaves": tree.leaves,
        "fastest first": list(tree.fastest_first()),
        "children": {id: tree.children(id) for id in ids},
        "pending children": {id: tree.pending_children(id) for id in ids},
    }


def _run(policy: Policy, attempts: int, statuses: Sequence[str], rng: random.Random) -> Tree:
    """The tree of a run with these outcomes and up to four attempts at once; the last ones are still in flight."""
    tree = Tree(EAGER_MS)
    while len(tree.nodes) < attempts:
        selection = policy.select(tree, rng) if len(tree.pending) < 4 else None
        if selection is not None:
            tree.begin(tree.next_attempt, selection)
            continue
        assert tree.pending, f"stuck after {len(tree.nodes)} attempts that ended {statuses}"
        attempt, begun = rng.choice(list(tree.pending.items()))
        tree.add(outcome(attempt, begun, rng, statuses))
    return tree


def _trees(seed: int) -> Iterator[Tree]:
    """Empty, small and larger trees, with and without attempts in flight."""
    rng = random.Random(seed)
    for size in (0, 1, 3, 8, 30):
        for pending in (0, 1, 4):
            yield random_tree(size, rng, pending)
