from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from stark.core.errors import UsageError
from stark.core.evaluation import Correct
from stark.core.node import ROOT, Node, Selection
from stark.search.policies.epsilon_greedy import EpsilonGreedy
from stark.search.tree import Tree
from support.nodes import failing, unusable, working

EXPLOIT = EpsilonGreedy(epsilon=0.0)
EXPLORE = EpsilonGreedy(epsilon=1.0)


def tree_of(*nodes: Node, pending: Sequence[tuple[int, int]] = ()) -> Tree:
    """A tree of these nodes, with (attempt, parent) pairs in flight."""
    tree = Tree.replay(1.0, nodes)
    for attempt, parent in pending:
        action = "improve" if tree.works(parent) else "debug"
        tree.begin(attempt, Selection(parent=parent, action=action))
    return tree


def choices(policy: EpsilonGreedy, tree: Tree, draws: int = 200) -> Counter[int | None]:
    """How often each parent is selected, over fixed seeds."""
    selections = (policy.select(tree, random.Random(seed)) for seed in range(draws))
    return Counter(None if chosen is None else chosen.parent for chosen in selections)


def only_choice(policy: EpsilonGreedy, tree: Tree) -> int | None:
    (choice,) = choices(policy, tree)
    return choice


def full_root(*nodes: Node) -> list[Node]:
    """These nodes after five unusable children of the root, which throttle it and offer nothing."""
    return [*(unusable(id) for id in range(1, 6)), *nodes]


def test_the_defaults_are_the_papers_parameters() -> None:
    assert EpsilonGreedy(epsilon=0.3, n_root=5, n_child=3) == EpsilonGreedy()


def test_explores_with_probability_epsilon() -> None:
    """Exploiting takes 1, which is no leaf; exploring takes one of the leaves."""
    nodes = [working(1, latency_ms=0.2), working(2, 1, latency_ms=0.8), failing(3, 1), failing(4)]
    drawn = choices(EpsilonGreedy(), tree_of(*nodes), draws=10_000)

    assert {1, 2, 3, 4} == set(drawn)
    assert 0.70 == pytest.approx(drawn[1] / 10_000, abs=0.015)
    for leaf in (2, 3, 4):
        assert 0.10 == pytest.approx(drawn[leaf] / 10_000, abs=0.01), "each leaf as likely"


def test_exploits_the_fastest_correct_node() -> None:
    tree = tree_of(working(1, latency_ms=0.6), working(2, 1, latency_ms=0.3), working(3, 1))

    assert 2 == only_choice(EXPLOIT, tree)


def test_exploits_a_node_again_though_it_is_no_leaf() -> None:
    tree = tree_of(working(1, latency_ms=0.2), working(2, 1, latency_ms=0.7))

    assert 1 == only_choice(EXPLOIT, tree)


def test_the_root_is_exploited_until_something_beats_it() -> None:
    assert ROOT == only_choice(EXPLOIT, tree_of())
    assert ROOT == only_choice(EXPLOIT, tree_of(failing(1), working(2, latency_ms=1.5)))
    assert 3 == only_choice(EXPLOIT, tree_of(failing(1), working(3, latency_ms=0.9)))


def test_explores_leaves_only_including_failing_ones() -> None:
    nodes = [working(1), working(2, 1), failing(3, 1), failing(4), failing(5, 4, action="debug")]

    assert {2, 3, 5} == set(choices(EXPLORE, tree_of(*nodes)))


def test_failing_leaves_stay_reachable_after_a_success() -> None:
    """The known wrong reading makes the debug agent unreachable once something works."""
    tree = tree_of(failing(1), working(2, latency_ms=0.1))
    rng = random.Random(0)
    selections = [EpsilonGreedy().select(tree, rng) for _ in range(200)]

    assert Selection(parent=1, action="debug") in selections


def test_failing_nodes_are_debugged_and_correct_ones_improved() -> None:
    assert Selection(parent=1, action="debug") == EXPLORE.select(
        tree_of(failing(1)), random.Random(0)
    )
    assert Selection(parent=1, action="improve") == EXPLOIT.select(
        tree_of(working(1)), random.Random(0)
    )
    assert Selection(parent=ROOT, action="improve") == EXPLOIT.select(tree_of(), random.Random(0))


def test_the_root_is_throttled_at_five_children() -> None:
    slower = [working(id, latency_ms=1.0 + id) for id in range(1, 6)]

    assert ROOT == only_choice(EXPLOIT, tree_of(*slower[:4]))
    assert 1 == only_choice(EXPLOIT, tree_of(*slower))
    assert ROOT == only_choice(EpsilonGreedy(epsilon=0.0, n_root=6), tree_of(*slower))


def test_children_in_flight_and_unusable_ones_throttle_the_root_too() -> None:
    nodes = [working(1, latency_ms=2.0), unusable(2), failing(3)]

    assert ROOT == only_choice(EXPLOIT, tree_of(*nodes, pending=[(4, ROOT)]))
    assert 1 == only_choice(EXPLOIT, tree_of(*nodes, pending=[(4, ROOT), (5, ROOT)]))


def test_exploits_by_measured_speedup_even_if_its_interval_is_wider() -> None:
    """On a noisy machine the fastest attempt often has the lower lower end; it is expanded all the same."""
    exact, fastest = working(1, latency_ms=0.5), working(2, latency_ms=0.45)
    assert isinstance(fastest.evaluation, Correct)
    unsure = fastest.evaluation.candidate.model_copy(update={"resolution_ms": 0.1})
    evaluation = fastest.evaluation.model_copy(update={"candidate": unsure})

    assert 2 == only_choice(
        EXPLOIT, tree_of(exact, fastest.model_copy(update={"evaluation": evaluation}))
    )


def test_a_node_is_dead_once_three_children_have_all_failed() -> None:
    alive = [working(1, latency_ms=0.2), working(2, latency_ms=0.5), failing(3, 1), failing(4, 1)]

    assert 1 == only_choice(EXPLOIT, tree_of(*alive))
    assert 2 == only_choice(EXPLOIT, tree_of(*alive, failing(5, 1)))
    assert 1 == only_choice(EpsilonGreedy(epsilon=0.0, n_child=4), tree_of(*alive, failing(5, 1)))


def test_unusable_children_count_as_failed() -> None:
    best = working(1, latency_ms=0.2)

    nodes = [best, working(2), unusable(3, 1), unusable(4, 1), failing(5, 1)]
    assert 2 == only_choice(EXPLOIT, tree_of(*nodes))


def test_one_child_that_works_keeps_a_node_alive() -> None:
    nodes = [working(1, latency_ms=0.2), working(2, 1, latency_ms=0.9)]
    nodes += [failing(id, 1) for id in range(3, 9)]

    assert 1 == only_choice(EXPLOIT, tree_of(*nodes))


def test_children_of_a_dead_node_stay_expandable() -> None:
    """They are still repaired, and what a repair made of one is still improved."""
    nodes = [working(6, latency_ms=0.5), failing(7, 6), failing(8, 6), failing(9, 6)]
    dead = full_root(*nodes)
    assert {7, 8, 9} == set(choices(EXPLORE, tree_of(*dead)))

    repaired = working(10, 8, latency_ms=0.6, action="debug")
    assert 10 == only_choice(EXPLOIT, tree_of(*dead, repaired))


def test_the_root_is_never_dead() -> None:
    assert ROOT == only_choice(EXPLOIT, tree_of(failing(1), failing(2), failing(3)))


def test_a_leaf_that_only_got_unusable_replies_is_tried_until_it_is_dead() -> None:
    replies = [unusable(id, 6, action="debug") for id in (7, 8, 9)]

    assert 6 == only_choice(EXPLORE, tree_of(*full_root(failing(6), *replies[:2])))
    assert ROOT == only_choice(EXPLORE, tree_of(*full_root(failing(6), *replies)))


def test_an_unusable_attempt_is_never_selected() -> None:
    tree = tree_of(unusable(1), unusable(2), failing(3))

    assert {ROOT, 3} == set(choices(EpsilonGreedy(epsilon=0.5), tree))


def test_exploring_falls_back_on_the_fastest_when_no_leaf_is_left() -> None:
    tree = tree_of(working(1), failing(2, 1), pending=[(3, 2)])

    assert 1 == only_choice(EXPLORE, tree)


def test_exploiting_falls_back_on_the_leaves_when_nothing_that_works_is_left() -> None:
    failures = [failing(id) for id in range(1, 6)]

    assert {1, 2, 3, 4, 5} == set(choices(EXPLOIT, tree_of(*failures)))


def test_five_attempts_start_from_an_empty_tree_at_once_and_a_sixth_waits() -> None:
    tree = Tree(1.0)
    for attempt in range(1, 6):
        assert Selection(parent=ROOT, action="improve") == EpsilonGreedy().select(
            tree, random.Random(attempt)
        )
        tree.begin(attempt, Selection(parent=ROOT, action="improve"))

    assert None is only_choice(EpsilonGreedy(), tree)


def test_a_node_is_not_improved_twice_at_once() -> None:
    tree = tree_of(working(1, latency_ms=0.2), working(2, latency_ms=0.5), pending=[(3, 1)])

    assert 2 == only_choice(EXPLOIT, tree)
    assert {2} == set(choices(EXPLORE, tree))


def test_a_failing_node_is_not_debugged_twice_at_once() -> None:
    tree = tree_of(failing(1), failing(2), pending=[(3, 1)])

    assert {2} == set(choices(EXPLORE, tree))


def test_waits_while_everything_expandable_is_in_flight() -> None:
    tree = tree_of(*full_root(working(6, latency_ms=0.5)), pending=[(7, 6)])

    assert None is only_choice(EpsilonGreedy(), tree)


def test_the_root_opens_again_when_everything_is_dead() -> None:
    tree = tree_of(*full_root())
    assert Selection(parent=ROOT, action="improve") == EpsilonGreedy().select(
        tree, random.Random(0)
    )

    tree.begin(6, Selection(parent=ROOT, action="improve"))
    assert None is only_choice(EpsilonGreedy(), tree), "one at a time, for it may change everything"


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 1.1}, {"epsilon": -0.1}, {"n_root": 0}, {"n_child": 0}]
)
def test_invalid_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        EpsilonGreedy(**wrong)  # type: ignore[arg-type]
