from __future__ import annotations

import random
from collections import Counter

import pytest
from lab.policies.thompson import Thompson

from stark.core.errors import UsageError
from stark.core.node import ROOT, Node
from stark.search.tree import Tree
from support.nodes import unusable, working

PAIR = [working(1, latency_ms=0.2), working(2, latency_ms=0.5)]


def choices(policy: Thompson, *nodes: Node) -> Counter[int]:
    tree = Tree.replay(1.0, nodes)
    chosen = (policy.select(tree, random.Random(seed)) for seed in range(2000))
    return Counter(selection.parent for selection in chosen if selection)


def test_better_nodes_are_selected_more_often() -> None:
    drawn = choices(Thompson(trust=3.0), *PAIR)

    assert drawn[1] > drawn[2] > drawn[ROOT] > 0


def test_attempts_from_a_node_make_others_more_likely() -> None:
    tired = choices(Thompson(), *PAIR, *(unusable(id, 1) for id in range(3, 11)))

    assert tired[1] < choices(Thompson(), *PAIR)[1]


def test_without_trust_all_untried_nodes_are_equally_likely() -> None:
    drawn = choices(Thompson(trust=0.0), working(1), working(2, 1), working(3, 2))
    untried = drawn[3] / 2000

    assert 16 / 35 == pytest.approx(untried, abs=0.04), (
        "one draw of Beta(1, 1) against three of Beta(1, 2)"
    )


def test_negative_trust_is_refused() -> None:
    with pytest.raises(UsageError):
        Thompson(trust=-1.0)
