from __future__ import annotations

from datetime import UTC, datetime

import pytest
import store_samples as samples

from stark.core.bench import Bench, Cell
from stark.core.call import spent_by_role
from stark.core.errors import StoreError, UsageError
from stark.core.node import Selection
from stark.core.usage import Budget, Spent
from stark.store import Store

RUNS = ("relu-stark-1", "relu-sampling-1")


def bench(name: str = "small-1a2b") -> Bench:
    return Bench(
        name=name,
        created=datetime(2026, 3, 1, tzinfo=UTC),
        cells=tuple(
            Cell(problem="relu", level="level1", strategy=run.split("-")[1], seed=1, run_id=run)
            for run in RUNS
        ),
        attempts=3,
        budget=Budget(attempts=6, dollars=2.5),
    )


@pytest.fixture
def stored(store: Store) -> Store:
    store.create_bench(bench(), [samples.run(run) for run in RUNS])
    return store


def test_a_bench_is_read_as_it_was_stored_with_its_runs(stored: Store) -> None:
    assert bench() == stored.bench("small") == stored.bench("last")
    assert ["small-1a2b"] == stored.benches()
    assert samples.run(RUNS[0]) == stored.run(RUNS[0])


def test_two_benches_share_the_runs_that_they_have_in_common(stored: Store) -> None:
    more = [samples.run(run) for run in (*RUNS, "relu-reflexion-1")]

    stored.create_bench(bench("larger-3c4d"), more)

    assert [run.id for run in more] == [summary.id for summary in reversed(stored.summaries())]


def test_a_name_is_taken_once_and_nothing_of_the_second_is_stored(stored: Store) -> None:
    with pytest.raises(StoreError, match="storing bench small-1a2b failed"):
        stored.create_bench(bench(), [samples.run("another")])
    assert len(RUNS) == len(stored.summaries())


def test_a_bench_gets_another_budget(stored: Store) -> None:
    changed = bench().model_copy(update={"budget": Budget(attempts=9)})

    stored.change_bench(changed)

    assert changed == stored.bench("small-1a2b")


def test_a_bench_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="no benches yet; `stark bench run PATH` makes one"):
        store.bench("last")
    store.create_bench(bench(), [samples.run(run) for run in RUNS])
    with pytest.raises(UsageError, match="no bench 'large'; `stark bench list` lists"):
        store.bench("large")


def test_an_outcome_is_what_the_first_attempts_came_to(stored: Store) -> None:
    run = RUNS[0]
    repair = Selection(parent=1, action="debug")
    failed = samples.node(1)
    slow = samples.node(2, samples.correct(0.5), selection=repair)
    fast = samples.node(3, samples.correct(0.25))
    later = samples.node(4, samples.correct(0.125))
    for node in (failed, slow, fast, later):
        selection = Selection(parent=node.parent, action=node.action)
        stored.begin_attempt(run, node.id, selection)
        samples.answer(stored, run, samples.call(node.id))
    for elapsed_s, node in ((2.0, failed), (5.0, fast), (7.0, slow), (9.0, later)):
        stored.add_node(run, node, elapsed_s)

    outcome = stored.outcome(run, 3)

    assert [(1, 0, "improve"), (3, 0, "improve"), (2, 1, "debug")] == [
        attempt[:3] for attempt in outcome.attempts
    ]
    assert [False, True, True] == [attempt.works for attempt in outcome.attempts]
    assert fast.evaluation == outcome.best
    assert 7.0 == outcome.elapsed_s
    assert spent_by_role(samples.call(number) for number in (1, 2, 3)) == outcome.roles
    assert sum(outcome.roles.values(), Spent()) == outcome.spent
    assert later.evaluation == stored.outcome(run, 4).best


def test_a_run_that_has_not_begun_came_to_nothing_yet(stored: Store) -> None:
    outcome = stored.outcome(RUNS[1], 3)

    assert ((), None, None, {}, 0.0, None) == (
        outcome.attempts,
        outcome.best_attempt,
        outcome.best,
        outcome.roles,
        outcome.elapsed_s,
        outcome.ended,
    )
