from __future__ import annotations

import random
from collections import Counter

import pytest
from lab.policies.aide import Aide

from stark.core.errors import UsageError
from stark.core.node import ROOT, Node, Selection
from stark.search.tree import Tree
from support.nodes import failing, working

DRAFTS = [*(working(id, latency_ms=0.1 * id) for id in (1, 2, 3, 4)), failing(5)]


def choices(*nodes: Node, draws: int = 2000) -> Counter[int]:
    tree = Tree.replay(1.0, nodes)
    chosen = (Aide().select(tree, random.Random(seed)) for seed in range(draws))
    return Counter(selection.parent for selection in chosen if selection)


def test_five_drafts_come_first() -> None:
    for count in range(5):
        assert {ROOT: 20} == choices(*DRAFTS[:count], draws=20)


def test_then_half_of_the_time_a_repair_and_else_the_fastest() -> None:
    drawn = choices(*DRAFTS)

    assert {1, 5} == set(drawn)
    assert 0.5 == pytest.approx(drawn[5] / 2000, abs=0.04)


def test_a_branch_is_left_after_its_fourth_repair() -> None:
    repairs = [failing(id, id - 1, action="debug") for id in range(6, 9)]
    assert {1, 8} == set(choices(*DRAFTS, *repairs))

    assert {1} == set(choices(*DRAFTS, *repairs, failing(9, 8, action="debug")))


def test_another_draft_while_nothing_works() -> None:
    hopeless = [failing(id) for id in range(1, 6)]
    repairs = [failing(id + 5, id, action="debug") for id in range(1, 21)]

    assert {ROOT} == set(choices(*hopeless, *repairs))


def test_nodes_with_an_attempt_in_flight_are_skipped() -> None:
    tree = Tree.replay(1.0, DRAFTS)
    for attempt, parent, action in ((6, 1, "improve"), (7, 5, "debug")):
        tree.begin(attempt, Selection(parent=parent, action=action))

    assert Selection(parent=2, action="improve") == Aide().select(tree, random.Random(0))


@pytest.mark.parametrize("wrong", [{"debug_probability": 1.1}, {"drafts": 0}, {"depth": 0}])
def test_invalid_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Aide(**wrong)  # type: ignore[arg-type]
