from __future__ import annotations

from lab.rank_value import idle_nodes, rank_values

from stark.core.node import ROOT, Selection
from stark.search.tree import Tree
from support.nodes import failing, unusable, working


def test_correct_nodes_and_the_root_have_the_value_of_their_rank() -> None:
    tree = Tree.replay(
        1.0, [working(1, latency_ms=0.5), working(2, latency_ms=0.499), working(3, 1, 2.0)]
    )

    assert {2: 1.0, 1: 0.75, ROOT: 0.5, 3: 0.25} == rank_values(tree)


def test_a_failure_has_half_of_its_parents_value() -> None:
    tree = Tree.replay(
        1.0, [working(1), failing(2, 1), failing(3, 2, action="debug"), unusable(4, 1)]
    )

    assert {1: 1.0, ROOT: 0.5, 2: 0.5, 3: 0.25, 4: 0.0} == rank_values(tree)


def test_idle_nodes_have_a_source_and_nothing_in_flight() -> None:
    tree = Tree.replay(1.0, [working(1), failing(2), unusable(3), working(4, 1)])
    tree.begin(5, Selection(parent=1, action="improve"))

    assert [2, 4] == idle_nodes(tree)
