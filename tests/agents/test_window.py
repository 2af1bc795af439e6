from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import get_args

import pytest

from stark.agents.window import IDEAS, LIMIT, ContextWindow, Repair, RoleName, lone_window, window
from stark.core.node import ROOT, Node
from stark.core.plan import Plan
from stark.search.tree import Tree
from support.nodes import failing, random_tree, unusable, working
from support.policies import view

ROLES: tuple[RoleName, ...] = get_args(RoleName)


def ids(nodes: Iterable[Node]) -> list[int]:
    return [node.id for node in nodes]


def shown(tree: Tree, node_id: int, role: RoleName, seed: int = 0) -> ContextWindow:
    return window(tree, node_id, role, random.Random(seed))


@pytest.fixture
def tree() -> Tree:
    """1 (0.5 ms) has children 3..6; 2 (0.4 ms) and 7, 8 are its siblings; 9 repaired 7."""
    return Tree.replay(
        1.0,
        [
            working(1, latency_ms=0.5),
            working(2, latency_ms=0.4),
            working(3, 1, latency_ms=0.9),
            failing(4, 1),
            unusable(5, 1),
            failing(7),
            failing(8),
            working(9, 7, latency_ms=0.8, action="debug"),
        ],
    )


@pytest.mark.parametrize("role", ["plan", "solo"])
def test_plan_and_solo_see_the_children_and_the_leaderboard(tree: Tree, role: RoleName) -> None:
    seen = shown(tree, 1, role)

    assert tree.node(1) == seen.node
    assert [3, 4] == ids(seen.children), "failures too, but no unusable reply"
    assert [2] == ids(seen.leaderboard), "without the node itself"
    assert [3, 4, 2] == ids(seen.others)


@pytest.mark.parametrize("role", ["plan", "solo"])
def test_plan_and_solo_see_every_other_idea_in_the_run(role: RoleName) -> None:
    """2 repaired 1; 5 and 6 lead; 7 had no plan, and 8 started from it."""
    planned = [
        *(failing(1), working(2, 1, 0.9, "debug"), working(3, latency_ms=0.8), working(4, 2, 0.7)),
        *(working(5, latency_ms=0.1), working(6, latency_ms=0.2)),
    ]
    nodes = [
        each.model_copy(update={"plan": Plan(action="rewrite", strategy="A")}) for each in planned
    ]
    tree = Tree.replay(
        1.0,
        [*nodes, *(each.model_copy(update={"plan": None}) for each in (working(7), working(8, 7)))],
    )

    assert [3] == ids(shown(tree, 2, role).ideas), "4 is a child, and 1 is repaired"
    assert [2, 3, 4] == ids(shown(tree, 5, role).ideas)
    assert [2, 3, 4, 7] == ids(shown(tree, 8, role).ideas), "7 led to it"
    assert [] == ids(shown(tree, 2, "code").ideas) == ids(shown(tree, 1, "debug").ideas)


def test_the_latest_ideas_are_seen() -> None:
    plan = Plan(action="rewrite", strategy="A")
    nodes = [failing(id).model_copy(update={"plan": plan}) for id in range(1, IDEAS + 10)]

    seen = shown(Tree.replay(1.0, nodes), 1, "plan")

    assert list(range(10, IDEAS + 10)) == ids(seen.ideas)


def test_an_unusable_child_that_left_a_plan_was_a_try(tree: Tree) -> None:
    planned = unusable(10, 1).model_copy(update={"plan": tree.node(3).plan})
    tree.add(planned)

    assert [3, 4, 10] == ids(shown(tree, 1, "plan").children)


def test_a_leader_among_the_children_is_shown_once() -> None:
    nodes = [working(1, latency_ms=0.9), working(2, 1, latency_ms=0.3), working(3, latency_ms=0.4)]
    seen = shown(Tree.replay(1.0, nodes), 1, "plan")

    assert [2] == ids(seen.children)
    assert [3] == ids(seen.leaderboard)
    assert [2, 3] == ids(seen.leaders)


def test_at_the_root_the_node_is_the_reference(tree: Tree) -> None:
    seen = shown(tree, ROOT, "plan")

    assert seen.node is None
    assert [1, 2, 7, 8] == ids(seen.children)
    assert [] == ids(seen.leaderboard), "both leaders are children"


def test_code_sees_its_children_and_cousins_that_work(tree: Tree) -> None:
    tree.add(working(10, 2))
    tree.add(failing(11, 2))
    tree.add(working(12, 10))

    seen = shown(tree, 1, "code")

    assert [3, 4] == ids(seen.children), "failures too"
    assert [9, 10] == ids(seen.cousins), "working children of siblings, whether these work or not"
    assert [3, 4, 9, 10] == ids(seen.others)


def test_debug_sees_its_siblings_and_their_repairs(tree: Tree) -> None:
    seen = shown(tree, 8, "debug")

    assert tree.node(8) == seen.node
    assert [1, 2] == ids(seen.siblings)
    assert (Repair(broken=tree.node(7), fixed=tree.node(9)),) == seen.repairs
    assert [1, 2, 7, 9] == ids(seen.others)


def test_a_repair_that_failed_is_no_repair() -> None:
    nodes = [failing(1), failing(2), failing(3, 1, action="debug"), unusable(4)]
    seen = shown(Tree.replay(1.0, nodes), 2, "debug")

    assert [1] == ids(seen.siblings)
    assert () == seen.repairs


def test_a_repair_of_a_repair_is_one() -> None:
    nodes = [failing(1), failing(2), failing(3, 1, action="debug"), working(4, 3, action="debug")]
    tree = Tree.replay(1.0, nodes)
    seen = shown(tree, 2, "debug")

    assert (Repair(broken=tree.node(1), fixed=tree.node(4)),) == seen.repairs
    assert {4: 1} == seen.repaired_by


def test_a_child_of_a_working_sibling_is_no_repair() -> None:
    seen = shown(Tree.replay(1.0, [working(1), failing(2), working(3, 1)]), 2, "debug")

    assert [1] == ids(seen.siblings)
    assert () == seen.repairs


def test_a_repair_is_shown_whole_or_not_at_all() -> None:
    broken = [failing(id) for id in range(1, 6)]
    fixes = [working(10 + id, id, action="debug") for id in range(1, 5)]
    windows = [shown(Tree.replay(1.0, [*broken, *fixes]), 5, "debug", seed) for seed in range(50)]

    assert {2} == {len(seen.repairs) for seen in windows}, "five places hold two pairs"
    assert all(
        repair.fixed.parent == repair.broken.id for seen in windows for repair in seen.repairs
    )
    assert {1, 2, 3, 4} == {repair.broken.id for seen in windows for repair in seen.repairs}


def test_more_than_five_are_subsampled_evenly() -> None:
    nodes = [working(1), *(failing(id, 1) for id in range(2, 12))]
    tree = Tree.replay(1.0, nodes)
    windows = [shown(tree, 1, "code", seed) for seed in range(400)]
    drawn = Counter(id for seen in windows for id in ids(seen.others))

    assert {LIMIT} == {len(seen.others) for seen in windows}
    assert set(range(2, 12)) == set(drawn)
    assert all(150 < count < 250 for count in drawn.values()), drawn
    assert all(ids(seen.others) == sorted(ids(seen.others)) for seen in windows)


def test_the_leaderboard_is_always_shown_even_from_among_many_children() -> None:
    nodes = [working(1, latency_ms=0.9), working(2, latency_ms=0.3)]
    nodes += [failing(id, 1) for id in range(3, 40)]
    nodes += [working(40, 1, latency_ms=0.2)]
    tree = Tree.replay(1.0, nodes)

    for seed in range(30):
        seen = shown(tree, 1, "plan", seed)
        assert [2] == ids(seen.leaderboard)
        assert 40 == seen.children[-1].id
        assert 4 == len(seen.children)


@pytest.mark.parametrize("role", ROLES)
def test_a_window_is_small_pure_and_without_repeats(role: RoleName) -> None:
    for seed in range(10):
        tree = random_tree(40, random.Random(seed), pending=2)
        before = view(tree)
        for node_id in [ROOT, *ids(tree.nodes)]:
            seen = shown(tree, node_id, role, seed)
            others = ids(seen.others)
            assert len(others) <= LIMIT
            assert len(set(others) - {node_id}) == len(others)
            assert seen == shown(tree, node_id, role, seed)
        assert before == view(tree)


def test_the_window_of_a_baseline_without_memory_is_the_node_alone(tree: Tree) -> None:
    assert ContextWindow() == lone_window(tree, ROOT)
    assert ContextWindow(node=tree.node(1)) == lone_window(tree, 1)
