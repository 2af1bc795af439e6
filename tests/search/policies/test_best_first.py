from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from stark.core.errors import UsageError
from stark.core.node import ROOT, Node, Selection
from stark.search.policies.best_first import BestFirst
from stark.search.tree import Tree
from support.nodes import failing, unusable, working

STEADY = BestFirst(fresh=0.0)
"""Without chance."""

DRAFTS = [working(1, latency_ms=0.5), working(2, latency_ms=0.4), working(3, latency_ms=0.6)]


def tree_of(nodes: Sequence[Node], pending: Sequence[tuple[int, int]] = ()) -> Tree:
    """A tree of these nodes, with (attempt, parent) pairs in flight."""
    tree = Tree.replay(1.0, nodes)
    for attempt, parent in pending:
        action = "improve" if tree.works(parent) else "debug"
        tree.begin(attempt, Selection(parent=parent, action=action))
    return tree


def choice(tree: Tree, policy: BestFirst = STEADY) -> Selection | None:
    return policy.select(tree, random.Random(0))


def improve(parent: int) -> Selection:
    return Selection(parent=parent, action="improve")


def debug(parent: int) -> Selection:
    return Selection(parent=parent, action="debug")


def test_three_drafts_come_first_however_the_first_two_ended() -> None:
    for count in range(3):
        assert improve(ROOT) == choice(tree_of(DRAFTS[:count]))
    assert improve(ROOT) == choice(tree_of([unusable(1), DRAFTS[1]]))

    assert improve(2) == choice(tree_of(DRAFTS)), "then the fastest of them"


def test_drafts_in_flight_count() -> None:
    tree = tree_of(DRAFTS[:1], pending=[(2, ROOT), (3, ROOT)])

    assert improve(1) == choice(tree)


def test_a_failure_is_repaired_before_anything_else_and_only_once() -> None:
    assert debug(1) == choice(tree_of([failing(1)]))
    assert improve(ROOT) == choice(tree_of([failing(1), failing(2, 1, action="debug")]))
    assert improve(ROOT) == choice(tree_of([failing(1), unusable(2, 1, action="debug")]))


def test_the_newest_failure_is_repaired_first() -> None:
    assert debug(3) == choice(tree_of([failing(1), working(2), failing(3)]))


def test_a_failure_is_not_repaired_twice_at_once() -> None:
    assert improve(2) == choice(tree_of([*DRAFTS, failing(4, 2)], pending=[(5, 4)]))


def test_more_repairs_are_chained_up_to_their_bound() -> None:
    chain = [failing(1), failing(2, 1, action="debug"), failing(3, 2, action="debug")]

    assert debug(2) == choice(tree_of(chain[:2]), BestFirst(repairs=2))
    assert improve(ROOT) == choice(tree_of(chain), BestFirst(repairs=2))
    assert improve(ROOT) == choice(tree_of(chain[:1]), BestFirst(repairs=0))


def test_the_leader_has_three_attempts_then_the_next_fastest() -> None:
    slower = [working(id, 2, latency_ms=0.9) for id in (4, 5, 6)]

    assert improve(2) == choice(tree_of(DRAFTS + slower[:2]))
    assert improve(1) == choice(tree_of(DRAFTS + slower))


def test_a_node_faster_than_the_leader_becomes_the_leader() -> None:
    assert improve(4) == choice(tree_of([*DRAFTS, working(4, 2, latency_ms=0.3)]))


def test_attempts_slower_than_the_reference_are_improved_too() -> None:
    assert improve(1) == choice(tree_of([working(id, latency_ms=2.0 * id) for id in (1, 2, 3)]))


def test_another_draft_if_all_used_their_quota_or_have_an_attempt_in_flight() -> None:
    assert improve(ROOT) == choice(tree_of(DRAFTS, pending=[(4, 1), (5, 2), (6, 3)]))


def test_a_fresh_start_with_probability_fresh() -> None:
    tree = tree_of(DRAFTS)
    chosen = [BestFirst().select(tree, random.Random(seed)) for seed in range(5000)]
    counted = Counter(selection.parent for selection in chosen if selection)

    assert {ROOT, 2} == set(counted)
    assert 0.1 == pytest.approx(counted[ROOT] / 5000, abs=0.015)


@pytest.mark.parametrize(
    "wrong", [{"fresh": 1.1}, {"fresh": -0.1}, {"drafts": 0}, {"width": 0}, {"repairs": -1}]
)
def test_invalid_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        BestFirst(**wrong)  # type: ignore[arg-type]
