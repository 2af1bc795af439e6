from __future__ import annotations

import random

import pytest

from stark.core.evaluation import Correct
from stark.core.node import ROOT, Node, Selection
from stark.core.standing import vs_eager
from stark.search.tree import Tree
from support.nodes import correct, failing, failure, random_tree, unusable, working
from support.policies import view


def improve(parent: int) -> Selection:
    return Selection(parent=parent, action="improve")


@pytest.fixture
def family() -> Tree:
    """1 works; 2 fails and 5 repairs it; 3 and 4 come from 1, 4 unusable; 3 finished last."""
    return Tree.replay(
        1.0,
        [
            working(1, latency_ms=0.5),
            failing(2),
            unusable(4, 1),
            working(5, 2, latency_ms=0.4, action="debug"),
            working(3, 1, latency_ms=2.0),
        ],
    )


def test_an_empty_tree_is_the_reference() -> None:
    tree = Tree(root_latency_ms=3.5)

    assert () == tree.nodes
    assert ROOT in tree
    assert tree.works(ROOT) and tree.has_source(ROOT) and (ROOT,) == tree.leaves
    assert 3.5 == tree.root_latency_ms
    assert [ROOT] == list(tree.fastest_first())
    assert tree.best is None
    assert 1 == tree.next_attempt


def test_relations(family: Tree) -> None:
    def ids(nodes: object) -> list[int]:
        return [node.id for node in nodes]  # type: ignore[attr-defined]

    assert [1, 2, 4, 5, 3] == ids(family.nodes)
    assert [1, 2] == ids(family.children(ROOT))
    assert [4, 3] == ids(family.children(1)), "in the order in which they finished"
    assert [3] == ids(family.siblings(4))
    assert [] == ids(family.siblings(5))
    assert [] == ids(family.siblings(ROOT))
    assert [2, 5] == ids(family.path(5))
    assert [] == ids(family.path(ROOT))


def test_which_nodes_are_correct_and_how_fast(family: Tree) -> None:
    assert [True, False, False] == [family.works(id) for id in (1, 2, 4)]
    assert [True, False] == [family.has_source(id) for id in (2, 4)]
    assert [5, 1, ROOT, 3] == list(family.fastest_first())
    assert family.node(5) == family.best


def test_a_tuned_attempt_that_fails_later_keeps_its_children_and_is_no_start() -> None:
    """Its race was won, attempts started from it, and then it failed the final check."""
    tuned = working(2, parent=1).model_copy(update={"action": "tune"})
    refuted = tuned.model_copy(update={"evaluation": failure("incorrect")})

    tree = Tree.replay(1.0, [working(1), refuted, working(3, parent=2)])

    assert [2] == [node.id for node in tree.path(3) if node.id == 2]
    assert tree.has_source(2) and not tree.is_start(2)
    assert 2 not in tree.leaves


def test_ties_go_to_the_older_attempt() -> None:
    tree = Tree.replay(1.0, [working(2, latency_ms=0.5), working(1, latency_ms=0.5)])

    assert [1, 2, ROOT] == list(tree.fastest_first())


def test_ranked_by_paired_speedup_because_latencies_drift() -> None:
    in_a_slow_window = working(1).model_copy(update={"evaluation": correct(0.6, eager_ms=2.0)})
    tree = Tree.replay(1.0, [in_a_slow_window, working(2, latency_ms=0.5)])

    assert [1, 2, ROOT] == list(tree.fastest_first())


def test_leaves_have_a_source_and_no_child_with_one(family: Tree) -> None:
    assert (3, 5) == family.leaves


def test_an_unusable_child_leaves_its_parent_a_leaf() -> None:
    tree = Tree.replay(1.0, [failing(1), unusable(2, 1, action="debug")])

    assert (1,) == tree.leaves


def test_the_root_is_not_a_node() -> None:
    with pytest.raises(KeyError):
        Tree(1.0).node(ROOT)
    with pytest.raises(KeyError):
        Tree(1.0).children(7)


def test_an_attempt_in_flight_is_a_pending_child_until_it_is_added() -> None:
    tree = Tree(1.0)
    tree.begin(1, improve(ROOT))
    tree.begin(2, improve(ROOT))

    assert {1: improve(ROOT), 2: improve(ROOT)} == tree.pending
    assert 2 == tree.pending_children(ROOT)
    assert () == tree.children(ROOT)
    assert () == tree.leaves
    assert 3 == tree.next_attempt

    tree.add(failing(2))

    assert {1: improve(ROOT)} == tree.pending
    assert 1 == tree.pending_children(ROOT)
    assert [2] == list(tree.leaves)


def test_pending_is_read_only() -> None:
    tree = Tree(1.0)

    with pytest.raises(TypeError):
        tree.pending[1] = improve(ROOT)  # type: ignore[index]


@pytest.mark.parametrize(
    ("attempt", "parent", "why"),
    [
        (2, ROOT, "already in the tree"),
        (6, ROOT, "already in flight"),
        (7, 9, "a parent has a lower number"),
        (9, 7, "is not finished"),
        (9, 6, "is not finished"),
        (9, 4, "unusable"),
    ],
)
def test_begin_refuses(family: Tree, attempt: int, parent: int, why: str) -> None:
    family.begin(6, improve(3))
    before = view(family)

    with pytest.raises(ValueError, match=why):
        family.begin(attempt, improve(parent))
    assert before == view(family)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (working(5), "already in the tree"),
        (working(8, 7), "is not finished"),
        (working(8, 4), "unusable"),
        (working(6, 1), "differently than it began"),
        (working(6, 3, action="debug"), "differently than it began"),
    ],
)
def test_add_refuses(family: Tree, node: object, why: str) -> None:
    family.begin(6, improve(3))
    before = view(family)

    with pytest.raises(ValueError, match=why):
        family.add(node)  # type: ignore[arg-type]
    assert before == view(family)


@pytest.mark.parametrize("seed", range(20))
def test_replay_equals_what_grew_step_by_step(seed: int) -> None:
    grown = random_tree(40, random.Random(seed), pending=4)
    replayed = Tree.replay(grown.root_latency_ms, grown.nodes)
    for attempt, selection in grown.pending.items():
        replayed.begin(attempt, selection)

    assert view(grown) == view(replayed)


@pytest.mark.parametrize("seed", range(20))
def test_the_indexes_agree_with_the_nodes(seed: int) -> None:
    tree = random_tree(40, random.Random(seed), pending=4)
    parents = [selection.parent for selection in tree.pending.values()]

    for id in [ROOT, *(node.id for node in tree.nodes)]:
        children = [node for node in tree.nodes if node.parent == id]
        assert tuple(children) == tree.children(id)
        assert parents.count(id) == tree.pending_children(id)
        grew = id in parents or any(child.candidate for child in children)
        assert (tree.has_source(id) and not grew) == (id in tree.leaves)
    works = [node for node in tree.nodes if node.works]
    fastest = sorted(works, key=lambda node: (-(node.speedup_vs_eager or 0.0), node.id))
    assert [node.id for node in fastest] == [id for id in tree.fastest_first() if id != ROOT]


def measured(id: int, latency_ms: float, samples_ms: tuple[float, ...]) -> Node:
    """A correct node with these samples of the candidate."""
    node = working(id, latency_ms=latency_ms)
    assert isinstance(node.evaluation, Correct)
    candidate = node.evaluation.candidate.model_copy(update={"samples_ms": samples_ms})
    evaluation = node.evaluation.model_copy(update={"candidate": candidate})
    return node.model_copy(update={"evaluation": evaluation})


def test_nodes_are_ranked_by_their_measured_speedup_not_by_their_intervals_lower_end() -> None:
    exact = working(1, latency_ms=0.5)
    wide = measured(2, 0.4, (0.4, 0.4, 0.55, 0.55, 0.4, 0.4, 0.4, 0.4, 0.4))
    tree = Tree.replay(1.0, [exact, wide])
    first, second = vs_eager(tree.node(2).evaluation), vs_eager(tree.node(1).evaluation)

    assert first and second and first.ratio > second.ratio and first.low < second.low
    assert not first.too_noisy
    assert [2, 1, ROOT] == list(tree.fastest_first())


def test_a_measurement_that_is_too_noisy_comes_after_all_others() -> None:
    slow = working(1, latency_ms=2.0)
    noisy = measured(2, 0.4, (0.9, 0.2, 0.9, 0.2, 0.4, 0.9, 0.2, 0.9, 0.2))
    tree = Tree.replay(1.0, [noisy, slow])

    assert (speedup := vs_eager(tree.node(2).evaluation)) and speedup.too_noisy
    assert [ROOT, 1, 2] == list(tree.fastest_first())
    assert slow == tree.best


def test_drafts_are_counted_by_their_numbers_finished_or_not() -> None:
    tree = Tree.replay(1.0, [working(1), working(2, 1), working(4)])
    for attempt in (3, 5, 6):
        tree.begin(attempt, Selection(parent=1 if attempt == 5 else ROOT, action="improve"))

    assert [0, 1, 1, 2, 3, 3, 4] == [tree.drafts_before(attempt) for attempt in range(1, 8)]
