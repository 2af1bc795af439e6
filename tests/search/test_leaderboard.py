from __future__ import annotations

from stark.search.tree import Tree
from support.nodes import correct, failing, unusable, working


def ids(tree: Tree, size: int = 2) -> list[int]:
    return [node.id for node in tree.leaderboard(size)]


def test_the_two_fastest_correct_nodes() -> None:
    nodes = [working(1, latency_ms=0.9), failing(2), working(3, latency_ms=0.3), unusable(4)]
    tree = Tree.replay(1.0, [*nodes, working(5, latency_ms=0.5)])

    assert [3, 5] == ids(tree)
    assert [3, 5, 1] == ids(tree, size=9)


def test_the_reference_is_not_listed_even_if_it_is_fastest() -> None:
    assert [1] == ids(Tree.replay(1.0, [working(1, latency_ms=4.0)]))


def test_it_is_empty_without_a_correct_node() -> None:
    assert [] == ids(Tree.replay(1.0, [failing(1)]))


def test_the_older_wins_a_tie() -> None:
    nodes = [working(3, latency_ms=0.5), working(1, latency_ms=0.5), working(2, latency_ms=0.5)]

    assert [1, 2] == ids(Tree.replay(1.0, nodes))


def test_a_kernel_is_listed_once_however_often_it_was_written() -> None:
    again = working(2, latency_ms=0.3).model_copy(update={"duplicate_of": 1})
    nodes = [working(1, latency_ms=0.3), again, working(3, latency_ms=0.5)]

    assert [1, 3] == ids(Tree.replay(1.0, nodes))


def test_drift_between_windows_does_not_decide() -> None:
    """The machine ran at half its speed while 1 was measured, its reference included."""
    throttled = working(1).model_copy(update={"evaluation": correct(0.8, eager_ms=2.0)})

    assert [1, 2] == ids(Tree.replay(1.0, [throttled, working(2, latency_ms=0.5)]))
