from __future__ import annotations

from stark.search.repairs import failures, failures_repaired, newest_repairable, working_repair
from stark.search.tree import Tree
from support.nodes import failing, unusable, working


def test_failures_are_counted_from_the_last_that_worked() -> None:
    nodes = [
        working(1),
        failing(2, 1),
        failing(3, 2, action="debug"),
        working(4, 3, action="debug"),
    ]
    tree = Tree.replay(1.0, [*nodes, failing(5, 4), failing(6), failing(7, 6, action="debug")])

    assert [0, 2, 1] == [failures(tree, id) for id in (1, 7, 5)]


def test_unusable_repairs_count_though_they_hang_below() -> None:
    tree = Tree.replay(1.0, [failing(1), unusable(2, 1, action="debug")])

    assert 2 == failures(tree, 1)
    assert newest_repairable(tree, 1) is None
    assert 1 == newest_repairable(tree, 2)


def test_only_leaves_are_repaired_the_newest_first() -> None:
    tree = Tree.replay(1.0, [failing(1), failing(2), failing(3, 2, action="debug"), working(4)])

    assert 1 == newest_repairable(tree, 1)
    assert 3 == newest_repairable(tree, 2)


def test_a_failure_is_repaired_at_the_end_of_a_chain_of_repairs() -> None:
    broken = [failing(1), failing(3, 1, action="debug")]
    tree = Tree.replay(1.0, [*broken, working(4, 3, action="debug"), working(5, 3, action="debug")])

    assert tree.node(4) == working_repair(tree, 1) == working_repair(tree, 3)


def test_the_shortest_chain_counts() -> None:
    nodes = [failing(1), failing(2, 1, action="debug"), working(3, 2, action="debug")]
    tree = Tree.replay(1.0, [*nodes, working(4, 1, action="debug")])

    assert tree.node(4) == working_repair(tree, 1)


def test_what_is_no_repair_repairs_nothing() -> None:
    tree = Tree.replay(1.0, [failing(1), working(2, 1), failing(3, 1, action="debug")])

    assert None is working_repair(tree, 1)


def test_a_chain_may_be_long() -> None:
    chain = [failing(id, id - 1, action="debug") for id in range(2, 3000)]
    tree = Tree.replay(1.0, [failing(1), *chain, working(3000, 2999, action="debug")])

    assert tree.node(3000) == working_repair(tree, 1)


def test_a_chain_of_repairs_counts_as_one_repaired_failure() -> None:
    nodes = [
        failing(1),
        failing(2, parent=1, action="debug"),
        working(3, parent=2, action="debug"),
        failing(4),
        failing(5, parent=4, action="debug"),
        failing(6),
    ]

    assert (2, 1) == failures_repaired(nodes)
