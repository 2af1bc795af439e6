from __future__ import annotations

from stark.core.measurement import Speedup
from stark.core.node import Node
from stark.core.standing import best_node, standing, standing_of
from support.nodes import correct, failing, failure, working


def speedup(ratio: float, low: float, high: float) -> Speedup:
    return Speedup(reference="eager", ratio=ratio, low=low, high=high)


SHARP = speedup(3.0, 2.9, 3.1)
CLOSE = speedup(2.8, 2.7, 2.95)
SLOW = speedup(1.5, 1.4, 1.6)
NOISY = speedup(5.0, 1.0, 1137.0)


def repeating(node: Node, earlier: int) -> Node:
    return node.model_copy(update={"duplicate_of": earlier})


def test_the_fastest_by_measured_speedup_leads_whatever_its_interval() -> None:
    found = standing({1: SLOW, 2: speedup(3.2, 2.0, 3.4), 3: SHARP, 4: None}, {})

    assert (2, 3, 1) == found.ranking
    assert 2 == found.best


def test_a_noisy_measurement_never_leads_and_joins_no_group() -> None:
    found = standing({1: NOISY, 2: SHARP, 3: CLOSE}, {})

    assert (2, 3, 1) == found.ranking
    assert (2, 3) == found.group


def test_noisy_measurements_rank_and_group_among_themselves() -> None:
    found = standing({1: speedup(2.0, 0.1, 9.0), 2: NOISY}, {})

    assert (2, 1) == found.ranking == found.group


def test_the_group_holds_whatever_overlaps_the_fastest_even_past_a_slower_one() -> None:
    apart, wide = speedup(2.6, 2.5, 2.7), speedup(2.5, 1.9, 3.0)

    found = standing({1: apart, 2: wide, 3: SHARP}, {})

    assert (3, 1, 2) == found.ranking
    assert (3, 2) == found.group


def test_ties_go_to_the_older_attempt() -> None:
    assert (1, 2) == standing({2: SHARP, 1: SHARP}, {}).group


def test_after_a_final_check_only_what_passed_it_counts() -> None:
    found = standing({1: SHARP, 2: CLOSE, 3: SLOW}, {1: None, 2: SLOW})

    assert ((2,), (2,), True) == (found.ranking, found.group, found.confirmed)


def test_attempts_without_a_final_check_are_compared_with_the_best_by_the_searchs_figures() -> None:
    search = {1: SHARP, 2: CLOSE, 3: SLOW, 4: NOISY, 5: SHARP}

    assert (2,) == standing(search, {1: SLOW, 5: SLOW}).level
    assert () == standing(search, {}).level
    assert (1, 2, 3) == standing(search, {4: SHARP, 5: None}).level  # a noisy interval overlaps all


def test_nothing_leads_if_nothing_is_correct_or_the_final_check_refuted_all() -> None:
    for found in (standing({}, {}), standing({1: None}, {}), standing({1: SHARP}, {1: None})):
        assert ((), (), None) == (found.ranking, found.group, found.best)


def test_the_same_source_counts_once() -> None:
    nodes = [working(1), repeating(working(2, latency_ms=0.4), 1), working(3, latency_ms=0.6)]

    assert (1, 3) == standing_of(nodes, {}).ranking


def test_the_best_node_has_the_evaluation_that_counts() -> None:
    nodes = [working(1, latency_ms=0.5), working(2, latency_ms=0.25), failing(3)]
    check = correct(0.3)

    assert nodes[1] == best_node(nodes, {})
    assert nodes[1].model_copy(update={"evaluation": check}) == best_node(nodes, {2: check})
    assert best_node(nodes, {2: failure("incorrect")}) is None


def test_speedups_are_compared_within_their_own_windows() -> None:
    """Attempt 2 took less time, but in a window in which eager took less, too."""
    slower_window = correct(0.5, eager_ms=2.0)
    nodes = [
        working(1).model_copy(update={"evaluation": slower_window}),
        working(2, latency_ms=0.4),
    ]

    assert (1, 2) == standing_of(nodes, {}).ranking


def test_a_final_check_that_is_slower_or_too_noisy_does_not_outrank_a_better_search() -> None:
    lost, blurred = speedup(0.84, 0.3, 1.4), speedup(1.2, 0.5, 3.0)

    for check in (lost, SLOW.model_copy(update={"ratio": 0.9, "low": 0.8, "high": 0.95}), blurred):
        found = standing({1: SHARP, 2: CLOSE}, {1: check})
        assert (2, False) == (found.best, found.confirmed)
    assert 2 == standing({1: SHARP, 2: NOISY}, {1: lost}).best
    assert 1 == standing({1: SHARP, 2: NOISY}, {1: blurred}).best


def test_a_doubtful_final_check_leads_if_nothing_better_is_known() -> None:
    found = standing({1: SHARP, 2: speedup(0.9, 0.8, 0.95)}, {1: speedup(0.84, 0.3, 1.4)})

    assert (1, True) == (found.best, found.confirmed)
