from __future__ import annotations

import random

from stark.core.node import ROOT, Action, Node, Selection
from stark.search.policies.baselines import AlwaysRoot, Latest
from stark.search.tree import Tree
from support.nodes import failing, unusable, working


def after(*nodes: Node) -> Selection | None:
    return Latest().select(Tree.replay(1.0, nodes), random.Random(0))


def selection(parent: int, action: Action) -> Selection:
    return Selection(parent=parent, action=action)


def test_starts_at_the_root() -> None:
    assert selection(ROOT, "improve") == after()


def test_continues_from_the_last_attempt_even_if_an_earlier_one_was_faster() -> None:
    assert selection(2, "improve") == after(working(1, latency_ms=0.1), working(2, 1, 0.9))


def test_repairs_the_last_attempt_if_it_failed() -> None:
    assert selection(2, "debug") == after(working(1), failing(2, 1))


def test_an_unusable_reply_is_skipped() -> None:
    assert selection(1, "improve") == after(working(1), unusable(2, 1), unusable(3, 1))
    assert selection(ROOT, "improve") == after(unusable(1))


def test_waits_for_the_attempt_in_flight() -> None:
    tree = Tree.replay(1.0, [working(1)])
    tree.begin(2, selection(1, "improve"))

    assert Latest().select(tree, random.Random(0)) is None


def test_every_attempt_starts_from_the_reference_however_many_there_are() -> None:
    tree = Tree.replay(1.0, [working(1, latency_ms=0.1), *(unusable(id) for id in range(2, 20))])
    root = Selection(parent=ROOT, action="improve")
    for attempt in range(20, 30):
        assert root == AlwaysRoot().select(tree, random.Random(attempt))
        tree.begin(attempt, root)


def test_latest_does_not_repair_what_tuning_made() -> None:
    tuned = failing(2, parent=1).model_copy(update={"action": "tune"})

    selected = Latest().select(Tree.replay(1.0, [working(1), tuned]), random.Random(0))

    assert selected is not None and 1 == selected.parent
