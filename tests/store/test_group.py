"""Writes that share a commit: as whole, as durable and as isolated as those that have one each."""

from __future__ import annotations

import asyncio

import pytest
import store_samples as samples
from sqlalchemy import event

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


async def test_what_is_written_in_one_turn_of_the_loop_shares_a_commit(begun: Store) -> None:
    commits = commits_of(begun)

    async def write(attempt: int) -> None:
        begun.begin_attempt(RUN, attempt, samples.IMPROVE_ROOT)
        await begun.settled()

    with begun.grouped():
        await asyncio.gather(*map(write, range(1, 21)))
        assert 1 == len(commits)
        await write(21)
        assert 2 == len(commits)
    assert list(range(1, 22)) == list(begun.selections(RUN))


async def test_settled_is_on_disk_for_everyone(shared_url: str) -> None:
    with Store.open(shared_url) as store, Store.open(shared_url) as other, store.grouped():
        store.create_run(samples.run(RUN))
        assert [RUN] == [summary.id for summary in store.summaries()], "its own writes are seen"
        assert [] == other.summaries()

        await store.settled()

        assert [RUN] == [summary.id for summary in other.summaries()]


async def test_nobody_needs_to_wait_for_a_commit_to_happen(begun: Store) -> None:
    commits = commits_of(begun)
    with begun.grouped():
        begun.begin_attempt(RUN, 1, samples.IMPROVE_ROOT)
        for _ in range(3):
            await asyncio.sleep(0)
        assert 1 == len(commits)


async def test_what_is_open_when_the_block_ends_is_committed(begun: Store) -> None:
    with pytest.raises(ValueError, match="something else"), begun.grouped():
        begun.begin_attempt(RUN, 1, samples.IMPROVE_ROOT)
        raise ValueError("something else")
    assert [1] == list(begun.selections(RUN))


async def test_a_write_that_fails_takes_no_other_with_it(begun: Store) -> None:
    with begun.grouped():
        begun.begin_attempt(RUN, 1, samples.IMPROVE_ROOT)
        with pytest.raises(StoreError, match="attempt 1 of run layernorm-3f9a failed"):
            begun.begin_attempt(RUN, 1, samples.IMPROVE_ROOT)
        begun.begin_attempt(RUN, 2, samples.IMPROVE_ROOT)
        await begun.settled()
    assert [1, 2] == list(begun.selections(RUN))


async def test_a_commit_that_fails_is_told_to_all_who_wait_and_all_who_come(begun: Store) -> None:
    from sqlalchemy.exc import OperationalError

    def full(_: object) -> None:
        raise OperationalError("COMMIT", {}, Exception("database or disk is full"))

    async def write(attempt: int) -> None:
        begun.begin_attempt(RUN, attempt, samples.IMPROVE_ROOT)
        await begun.settled()

    event.listen(begun._database._engine, "commit", full)
    with pytest.raises(StoreError, match="disk is full"), begun.grouped():
        ended = await asyncio.gather(write(1), write(2), return_exceptions=True)
        assert [StoreError] * 2 == [type(one) for one in ended]
        with pytest.raises(StoreError, match="disk is full"):
            begun.begin_attempt(RUN, 3, samples.IMPROVE_ROOT)
    event.remove(begun._database._engine, "commit", full)
    assert {} == begun.selections(RUN)


async def test_ungrouped_writes_are_settled_at_once(begun: Store) -> None:
    commits = commits_of(begun)

    begun.begin_attempt(RUN, 1, samples.IMPROVE_ROOT)
    assert 1 == len(commits)
    await begun.settled()
