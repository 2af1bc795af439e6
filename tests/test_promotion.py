"""The final check of a run's leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import loop_samples as samples
from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Evaluation, Incorrect
from stark.core.node import Node, Selection
from stark.promotion import as_checked, promote, winner
from stark.search.tree import Tree
from stark.store import Store
from stark.testing.executor import FakeExecutor
from stark.testing.nodes import EAGER_MS, correct, working


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def stored(store: Store, latencies_ms: list[float]) -> Tree:
    """A run whose attempts, all from the reference, came to these times."""
    run = samples.run(attempts=len(latencies_ms))
    store.create_run(run)
    nodes = [working(number, latency_ms=ms) for number, ms in enumerate(latencies_ms, start=1)]
    for each in nodes:
        store.begin_attempt(run.id, each.id, Selection(parent=0, action=each.action))
        store.add_node(run.id, each, 1.0)
    return Tree.replay(EAGER_MS, nodes)


async def checked(
    store: Store, tree: Tree, evaluation: Callable[[Candidate], Evaluation]
) -> tuple[list[str], Node | None]:
    """What a watch saw, and who won."""
    run, watch = samples.run(), samples.Notes()
    await promote(run.id, run.problem, tree, store, FakeExecutor(evaluation), watch)
    return watch.events, winner(tree, store.promotions(run.id))


async def test_a_leader_that_holds_is_the_winner_with_the_new_measurement(store: Store) -> None:
    tree = stored(store, [EAGER_MS / 2, EAGER_MS / 4, EAGER_MS])

    events, won = await checked(store, tree, lambda _: correct(EAGER_MS / 3.9))

    assert ["final check of 2", "final check of 2: correct"] == events
    assert won is not None and isinstance(won.evaluation, Correct)
    assert 2 == won.id
    assert "promote" == won.evaluation.effort
    assert 3.9 == pytest.approx(won.evaluation.speedup_vs("eager").ratio)


async def test_a_leader_that_was_lucky_has_the_next_ones_checked_too(store: Store) -> None:
    tree = stored(store, [EAGER_MS / 2, EAGER_MS / 4, EAGER_MS])
    again = iter([EAGER_MS / 1.5, EAGER_MS / 1.9])

    events, won = await checked(store, tree, lambda _: correct(next(again)))

    assert ["final check of 2", "final check of 1"] == events[::2]
    assert won is not None
    assert 1 == won.id


async def test_where_no_leader_holds_nobody_wins(store: Store) -> None:
    tree = stored(store, [EAGER_MS / n for n in (2, 3, 4, 5)])

    events, won = await checked(store, tree, lambda _: Incorrect(error="wrong at times"))

    assert [f"final check of {n}: incorrect" for n in (4, 3)] == events[1::2]
    assert won is None


async def test_a_run_that_goes_on_counts_those_that_did_not_hold_as_failed(store: Store) -> None:
    tree = stored(store, [EAGER_MS / n for n in (2, 3, 4, 5)])
    await checked(store, tree, lambda _: Incorrect(error="wrong at times"))

    nodes = as_checked(tree.nodes, store.promotions(samples.run().id))
    events, won = await checked(
        store, Tree.replay(EAGER_MS, nodes), lambda _: correct(EAGER_MS / 2.5)
    )

    assert ["correct", "correct", "incorrect", "incorrect"] == [n.evaluation.status for n in nodes]
    assert "final check of 2: correct" == events[1]
    assert won is not None and 2 == won.id


async def test_what_was_checked_is_not_checked_again(store: Store) -> None:
    tree = stored(store, [EAGER_MS / 2, EAGER_MS / 4])
    await checked(store, tree, lambda _: correct(EAGER_MS / 4))

    events, won = await checked(store, tree, lambda _: Incorrect(error="never asked"))

    assert [] == events
    assert won is not None
    assert 2 == won.id
