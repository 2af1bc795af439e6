from __future__ import annotations

import random

import pytest

from stark.core.errors import RecordingError
from stark.core.node import ROOT, Selection
from stark.search.policies.epsilon_greedy import EpsilonGreedy
from stark.search.policies.recorded import Recorded
from stark.search.tree import Tree
from support.nodes import failing, outcome, unusable, working

IMPROVE_ROOT = Selection(parent=ROOT, action="improve")
IMPROVE_1 = Selection(parent=1, action="improve")


def test_a_recorded_run_is_repeated() -> None:
    rng = random.Random(3)
    original = Tree(1.0)
    for attempt in range(1, 31):
        selection = EpsilonGreedy().select(original, rng)
        assert selection is not None
        original.add(outcome(attempt, selection, rng))

    recording = {n.id: Selection(parent=n.parent, action=n.action) for n in original.nodes}
    repeated = Tree(1.0)
    for node in original.nodes:
        assert recording[node.id] == Recorded(recording).select(repeated, random.Random(0))
        repeated.add(node)


def test_waits_for_a_parent_in_flight() -> None:
    policy = Recorded({1: IMPROVE_ROOT, 2: IMPROVE_1})
    tree = Tree(1.0)
    tree.begin(1, IMPROVE_ROOT)
    assert policy.select(tree, random.Random(0)) is None

    tree.add(working(1))
    assert IMPROVE_1 == policy.select(tree, random.Random(0))


def test_keeps_the_recorded_action_even_if_the_parent_ends_differently() -> None:
    tree = Tree.replay(1.0, [failing(1)])

    assert IMPROVE_1 == Recorded({2: IMPROVE_1}).select(tree, random.Random(0))


def test_an_attempt_beyond_the_recording_is_refused() -> None:
    with pytest.raises(RecordingError, match="has no attempt 2"):
        Recorded({1: IMPROVE_ROOT}).select(Tree.replay(1.0, [working(1)]), random.Random(0))


@pytest.mark.parametrize("node", [unusable(1), working(2)])
def test_a_parent_that_cannot_be_started_from_is_refused(node: object) -> None:
    tree = Tree(1.0)
    tree.add(node)  # type: ignore[arg-type]

    with pytest.raises(RecordingError, match="starts from attempt 1"):
        Recorded({2: IMPROVE_1, 3: IMPROVE_1}).select(tree, random.Random(0))
