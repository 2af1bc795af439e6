from __future__ import annotations

import random

import pytest
from lab.policies.beam import Beam

from stark.core.errors import UsageError
from stark.core.node import ROOT, Node, Selection
from stark.search.tree import Tree
from support.nodes import failing, working

FIRST = [working(id, latency_ms=0.1 * id) for id in range(1, 7)]
"""A whole first batch; 1 and 2 survive."""


def after(*nodes: Node, pending: tuple[tuple[int, int], ...] = ()) -> Selection | None:
    tree = Tree.replay(1.0, nodes)
    for attempt, parent in pending:
        tree.begin(attempt, Selection(parent=parent, action="improve"))
    return Beam().select(tree, random.Random(0))


def improve(parent: int) -> Selection:
    return Selection(parent=parent, action="improve")


def test_the_first_batch_is_six_attempts_from_the_root() -> None:
    for count in range(6):
        assert improve(ROOT) == after(*FIRST[:count])


def test_a_batch_waits_for_its_last_attempt() -> None:
    assert after(*FIRST[:5], pending=((6, ROOT),)) is None


def test_the_two_fastest_get_three_attempts_each_one_batch_after_the_other() -> None:
    slow = [working(id, 1, latency_ms=2.0) for id in (7, 8, 9)]

    assert improve(1) == after(*FIRST)
    assert improve(1) == after(*FIRST, pending=((7, 1), (8, 1)))
    assert after(*FIRST, pending=((7, 1), (8, 1), (9, 1))) is None
    assert improve(2) == after(*FIRST, *slow)


def test_a_failure_is_repaired_once_within_its_batch() -> None:
    assert Selection(parent=6, action="debug") == after(*FIRST[:5], failing(6))
    assert improve(1) == after(*FIRST[:5], failing(6), failing(7, 6, action="debug"))


def test_a_fresh_start_if_the_survivors_stay_the_fastest() -> None:
    worse = [working(id, 1 + (id > 9), latency_ms=2.0) for id in range(7, 13)]

    assert improve(ROOT) == after(*FIRST, *worse)


@pytest.mark.parametrize("wrong", [{"width": 0}, {"branch": 0}, {"repairs": 0}])
def test_invalid_parameters_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Beam(**wrong)
