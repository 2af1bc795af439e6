from __future__ import annotations

import random

import pytest
from lab.policies.ucb import Ucb

from stark.core.errors import UsageError
from stark.core.node import ROOT, Node, Selection
from stark.search.tree import Tree
from support.nodes import unusable, working


def parent(policy: Ucb, *nodes: Node, pending: int | None = None) -> int:
    tree = Tree.replay(1.0, nodes)
    if pending is not None:
        tree.begin(tree.next_attempt, Selection(parent=pending, action="improve"))
    chosen = policy.select(tree, random.Random(0))
    assert chosen is not None
    return chosen.parent


def test_without_exploration_it_takes_the_best_mean() -> None:
    """Values: 1 has 1, 2 has 2/3, the root 1/3; failed attempts from 1 count against it."""
    pair = [working(1, latency_ms=0.2), working(2, latency_ms=0.5)]

    assert 1 == parent(Ucb(exploration=0.0), *pair)
    assert 2 == parent(Ucb(exploration=0.0), *pair, unusable(3, 1))


def test_exploration_prefers_arms_with_few_observations() -> None:
    """Node 1 has a mean of 0.63 over 4 observations; its slowest child has a single observation of 0.25."""
    nodes = [working(1, latency_ms=0.2)]
    nodes += [working(id, 1, latency_ms=0.2 + 0.1 * id) for id in (2, 3, 4)]

    assert 2 == parent(Ucb(exploration=0.0), *nodes)
    assert ROOT != parent(Ucb(exploration=5.0), *nodes)
    assert 1 != parent(Ucb(exploration=5.0), *nodes)


def test_nodes_with_an_attempt_in_flight_are_not_selected() -> None:
    pair = [working(1, latency_ms=0.2), working(2, latency_ms=0.5)]

    assert 2 == parent(Ucb(exploration=0.0), *pair, pending=1)


def test_negative_exploration_is_refused() -> None:
    with pytest.raises(UsageError):
        Ucb(exploration=-0.1)
