from __future__ import annotations

from stark.core.node import ROOT, Selection
from stark.search.tree import Tree
from stark.search.worth import at_rest, worths
from stark.testing.nodes import failing, unusable, working


def test_what_works_is_worth_its_rank_the_root_included() -> None:
    tree = Tree.replay(
        1.0, [working(1, latency_ms=0.5), working(2, latency_ms=0.499), working(3, 1, 2.0)]
    )

    assert {2: 1.0, 1: 0.75, ROOT: 0.5, 3: 0.25} == worths(tree)


def test_a_failure_is_worth_half_of_what_it_set_out_from() -> None:
    tree = Tree.replay(
        1.0, [working(1), failing(2, 1), failing(3, 2, action="debug"), unusable(4, 1)]
    )

    assert {1: 1.0, ROOT: 0.5, 2: 0.5, 3: 0.25, 4: 0.0} == worths(tree)


def test_at_rest_is_what_has_a_source_and_nothing_in_flight() -> None:
    tree = Tree.replay(1.0, [working(1), failing(2), unusable(3), working(4, 1)])
    tree.begin(5, Selection(parent=1, action="improve"))

    assert [2, 4] == at_rest(tree)
