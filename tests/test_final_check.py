"""The final check of a run's leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

import loop_samples as samples
from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable
from stark.core.evaluation import Correct, Evaluation, Incorrect
from stark.core.node import Node, Selection
from stark.core.standing import best_node
from stark.core.usage import Budget
from stark.events import CheckBegan, CheckFinished, Event
from stark.final_check import MOST_CHECKED, MOST_PASSED, check_leaders, demote_refuted
from stark.search.tree import Tree
from stark.store import Store
from support.executor import FakeExecutor
from support.nodes import EAGER_MS, correct, working

RUN = samples.run()


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def stored(
    store: Store, speedups: list[float], changes: Mapping[int, dict[str, object]] | None = None
) -> Tree:
    """A run whose attempts, all from the reference, were so fast; `changes` are of single nodes."""
    store.create_run(RUN)
    nodes = [working(id, latency_ms=EAGER_MS / one) for id, one in enumerate(speedups, start=1)]
    nodes = [node.model_copy(update=dict((changes or {}).get(node.id, {}))) for node in nodes]
    for each in nodes:
        store.begin_attempt(RUN.id, each.id, Selection(parent=0, action=each.action))
        store.add_node(RUN.id, each, 1.0)
    return Tree.replay(EAGER_MS, nodes)


def at(speedup: float) -> Evaluation:
    return correct(EAGER_MS / speedup)


def wrong(_: Candidate) -> Evaluation:
    return Incorrect(error="wrong at times")


async def checked(
    store: Store, tree: Tree, judge: Callable[[Candidate], Evaluation]
) -> tuple[list[int], Node | None]:
    """The attempts that one session checked, and the best attempt after it."""
    events: list[Event] = []
    await check_leaders(RUN.id, RUN.problem, tree, store, FakeExecutor(judge), events.append)
    began = [event.node.id for event in events if isinstance(event, CheckBegan)]
    assert began == [event.node.id for event in events if isinstance(event, CheckFinished)]
    return began, best_node(tree.nodes, store.promotions(RUN.id))


async def test_a_leader_that_passes_is_best_with_the_new_measurement(store: Store) -> None:
    tree = stored(store, [2, 4, 1])

    began, best = await checked(store, tree, lambda _: at(3.9))

    assert [2] == began
    assert best is not None and isinstance(best.evaluation, Correct)
    assert (2, "promote") == (best.id, best.evaluation.effort)
    assert 3.9 == pytest.approx(best.evaluation.speedup_vs("eager").ratio)


async def test_a_leader_that_was_lucky_has_the_next_one_checked_too(store: Store) -> None:
    again = iter([1.5, 1.9])

    began, best = await checked(store, stored(store, [2, 4, 1]), lambda _: at(next(again)))

    assert [2, 1] == began
    assert best is not None
    assert 1 == best.id


async def test_it_stops_once_enough_have_passed_though_others_may_be_faster(store: Store) -> None:
    began, _ = await checked(store, stored(store, [5, 6, 7, 8]), lambda _: at(2))

    assert [4, 3] == began
    assert MOST_PASSED == len(began)


async def test_refuted_leaders_give_way_to_the_next_until_one_passes(store: Store) -> None:
    verdicts = iter([False, False, False, True])

    def judge(candidate: Candidate) -> Evaluation:
        return at(4) if next(verdicts) else wrong(candidate)

    began, best = await checked(store, stored(store, [2, 3, 4, 5, 6, 7]), judge)

    assert [6, 5, 4, 3] == began
    assert best is not None
    assert 3 == best.id


async def test_a_session_checks_five_and_the_next_one_goes_on_below_them(store: Store) -> None:
    tree = stored(store, [2, 3, 4, 5, 6, 7, 8])

    first, none = await checked(store, tree, wrong)
    second, best = await checked(store, tree, lambda _: at(3))

    assert [7, 6, 5, 4, 3] == first
    assert MOST_CHECKED == len(first)
    assert none is None
    assert [2] == second, "which is as fast as the next was"
    assert best is not None
    assert 2 == best.id


async def test_what_passed_is_not_checked_again(store: Store) -> None:
    tree = stored(store, [2, 4])
    await checked(store, tree, lambda _: at(4))

    began, best = await checked(store, tree, wrong)

    assert [] == began
    assert best is not None
    assert 2 == best.id


async def test_identical_candidates_are_checked_once(store: Store) -> None:
    tree = stored(store, [2, 4, 4], {3: {"duplicate_of": 2}})

    began, best = await checked(store, tree, wrong)

    assert [2, 1] == began
    assert best is None


async def test_a_resumed_search_counts_the_refuted_and_their_duplicates_as_failed(
    store: Store,
) -> None:
    tree = stored(store, [2, 5, 3, 4, 5], {5: {"duplicate_of": 2}})
    await checked(store, tree, lambda _: wrong(_) if len(store.promotions(RUN.id)) < 2 else at(3))

    nodes = demote_refuted(tree.nodes, store.promotions(RUN.id))

    assert {2, 3, 4} == set(store.promotions(RUN.id))
    assert [1, 3] == [node.id for node in nodes if node.works]


@pytest.mark.parametrize(
    ("attempts", "newly_checked"), [(6, {5, 4, 3, 2, 1}), (8, {8, 7, 5, 4, 3})]
)
async def test_an_interrupted_final_check_goes_on_with_its_leaders(
    store: Store, attempts: int, newly_checked: set[int]
) -> None:
    """At the run's limit; with a larger budget the search goes on first, and does not trust what was refuted."""

    def dies_in_the_second_check(candidate: Candidate) -> Evaluation:
        if len(executor.promoted) == 1:
            return wrong(candidate)
        if executor.promoted:
            raise JudgeUnavailable("no judge answers: start one")
        return at(1 + len(executor.evaluated))  # each faster than the one before

    run, executor = samples.run(attempts=6), FakeExecutor(dies_in_the_second_check)
    with pytest.raises(JudgeUnavailable):
        await samples.work(store, run, executor)
    assert ([6], None) == (list(store.promotions(run.id)), store.ended(run.id))
    store.reconfigure(samples.run(budget=Budget(attempts=attempts)))

    def refutes(candidate: Candidate) -> Evaluation:
        return wrong(candidate) if refuting.promoted else at(20 + len(refuting.evaluated))

    refuting = FakeExecutor(refutes)
    worked = await samples.work(store, store.run(run.id), refuting)

    assert {6} | newly_checked == set(store.promotions(run.id))
    assert (attempts == 6) == worked.tree.works(6)
    assert f"{attempts} attempts made" == worked.reason
