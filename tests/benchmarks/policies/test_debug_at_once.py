from __future__ import annotations

import random

import pytest
from lab.policies.debug_at_once import DebugAtOnce

from stark.core.errors import UsageError
from stark.core.node import Node, Selection
from stark.search.policies.epsilon_greedy import EpsilonGreedy
from stark.search.tree import Tree
from support.nodes import failing, random_tree, working


def parent(policy: DebugAtOnce, *nodes: Node) -> int | None:
    chosen = policy.select(Tree.replay(1.0, nodes), random.Random(0))
    return None if chosen is None else chosen.parent


def test_a_failure_is_repaired_though_something_works() -> None:
    tree = Tree.replay(1.0, [working(1, latency_ms=0.2), failing(2, 1)])

    for seed in range(50):
        chosen = DebugAtOnce().select(tree, random.Random(seed))
        assert Selection(parent=2, action="debug") == chosen


def test_it_is_given_up_after_its_repairs() -> None:
    chain = [working(1, latency_ms=0.2), failing(2, 1), failing(3, 2, action="debug")]

    assert 3 == parent(DebugAtOnce(repairs=2, epsilon=0.0), *chain)
    assert 1 == parent(DebugAtOnce(repairs=1, epsilon=0.0), *chain)


def test_with_nothing_to_repair_it_is_epsilon_greedy() -> None:
    tree = random_tree(20, random.Random(5))
    for node in tree.nodes:
        while not node.works and node.id in tree.leaves:
            tree.add(working(tree.next_attempt, node.id, action="debug"))

    for seed in range(20):
        expected = EpsilonGreedy().select(tree, random.Random(seed))
        assert expected == DebugAtOnce().select(tree, random.Random(seed))


def test_no_repair_at_all_is_refused() -> None:
    with pytest.raises(UsageError):
        DebugAtOnce(repairs=0)
