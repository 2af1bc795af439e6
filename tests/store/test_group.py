"""Writes that share a commit: as whole, as durable and as isolated as those that have one each."""

from __future__ import annotations

import asyncio

import pytest
import store_samples as samples
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from stark.core.errors import StoreError
from stark.store import Store

RUN = "layernorm-3f9a"


@pytest.fixture
def begun(store: Store) -> Store:
    store.create_run(samples.run(RUN))
    return store


def commits_of(store: Store) -> list[object]:
    """A list that grows with every commit from now on."""
    seen: list[object] = []
    event.listen(store._database._engine, "commit", seen.append)
    return seen


async def begin(store: Store, attempt: int) -> None:
    await store.retried(store.begin_attempt, RUN, attempt, samples.IMPROVE_ROOT)


async def test_what_is_written_in_one_turn_of_the_loop_shares_a_commit(begun: Store) -> None:
    commits = commits_of(begun)

    await asyncio.gather(*(begin(begun, attempt) for attempt in range(1, 21)))
    assert 1 == len(commits)
    await begin(begun, 21)
    assert 2 == len(commits)

    assert list(range(1, 22)) == list(begun.selections(RUN))


async def test_what_is_awaited_is_on_disk_for_everyone(shared_url: str) -> None:
    with Store.open(shared_url) as store, Store.open(shared_url) as other:
        writing = asyncio.create_task(store.retried(store.create_run, samples.run(RUN)))
        await asyncio.sleep(0)
        assert [RUN] == [summary.id for summary in store.summaries()], "its own writes are seen"
        assert [] == other.summaries()

        await writing

        assert [RUN] == [summary.id for summary in other.summaries()]


async def test_nobody_needs_to_wait_for_a_commit_to_happen(begun: Store) -> None:
    commits = commits_of(begun)
    writing = asyncio.create_task(begin(begun, 1))
    await asyncio.sleep(0)
    writing.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (1, True) == (len(commits), writing.cancelled())


async def test_what_is_open_is_committed_before_a_write_of_its_own(begun: Store) -> None:
    commits = commits_of(begun)
    writing = asyncio.create_task(begin(begun, 1))
    await asyncio.sleep(0)

    begun.begin_attempt(RUN, 2, samples.IMPROVE_ROOT)

    assert 2 == len(commits)
    await writing
    assert [1, 2] == list(begun.selections(RUN))


async def test_a_write_that_fails_takes_no_other_with_it(begun: Store) -> None:
    ended = await asyncio.gather(*(begin(begun, n) for n in (1, 1, 2)), return_exceptions=True)

    assert "attempt 1 of run layernorm-3f9a failed" in str(ended[1])
    assert [1, 2] == list(begun.selections(RUN))


async def test_a_commit_that_fails_is_told_to_all_who_wait(begun: Store) -> None:
    def full(_: object) -> None:
        raise OperationalError("COMMIT", {}, Exception("database or disk is full"))

    event.listen(begun._database._engine, "commit", full)
    ended = await asyncio.gather(begin(begun, 1), begin(begun, 2), return_exceptions=True)
    event.remove(begun._database._engine, "commit", full)

    assert [StoreError] * 2 == [type(one) for one in ended]
    assert "disk is full" in str(ended[0])
    assert {} == begun.selections(RUN)


async def test_stores_of_one_event_loop_do_not_wait_for_each_other(shared_url: str) -> None:
    with Store.open(shared_url) as one, Store.open(shared_url) as other:
        stores = (one, other, one, other)
        runs = (samples.run(f"relu-{n}") for n in range(4))  # with one text in common
        await asyncio.wait_for(
            asyncio.gather(
                *(s.retried(s.create_run, run) for s, run in zip(stores, runs, strict=True))
            ),
            10,
        )
        assert 4 == len(one.summaries())


async def test_a_write_by_itself_is_on_disk_at_once(begun: Store) -> None:
    commits = commits_of(begun)

    begun.begin_attempt(RUN, 1, samples.IMPROVE_ROOT)
    assert 1 == len(commits)
