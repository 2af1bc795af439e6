"""A PostgreSQL server that goes away: runs wait for it and go on, no reply is bought twice, nothing is stored twice."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import select

import loop_samples as samples
from stark.core.call import Call
from stark.core.errors import StoreError, TryAgain
from stark.core.node import Node, Selection
from stark.core.run import Run
from stark.events import Event, Notice
from stark.store import Store, retrying
from stark.store.group import Transaction
from stark.store.leases import LEASES
from support.executor import FakeExecutor
from support.postgres import Server

REPLY_S, JUDGE_S = 0.004, 0.006
SELECTION = Selection(parent=0, action="improve")


@pytest.fixture
def store(postgres: Server) -> Iterator[Store]:
    with Store.open(postgres.url()) as store:
        yield store


class Working:
    """A run in this process, with all its questions and notices."""

    def __init__(self, store: Store, run: Run, at: Callable[[int], object] = lambda asked: None):
        """`at` is called after each question with the number of questions so far."""
        self.store, self.run, self._at = store, run, at
        self.asked: Counter[tuple[int, int]] = Counter()
        self.notices: list[str] = []

    async def work(self) -> None:
        async def before(attempt: int, turn: int) -> None:
            self.asked[attempt, turn] += 1
            self._at(self.asked.total())

        replies: Any = samples.Arranged(before, delay_s=REPLY_S)
        executor = FakeExecutor(delay_s=JUDGE_S)
        await samples.work(self.store, self.run, executor, replies, on_event=self._note)

    def _note(self, event: Event) -> None:
        if isinstance(event, Notice):
            self.notices.append(event.text)

    def check(self) -> None:
        """Each attempt is there once, with all its replies, each of which was asked for once."""
        run, store = self.run, self.store
        attempts = list(range(1, run.config.budget.attempts + 1))
        assert attempts == sorted(node.id for node in store.nodes(run.id))
        assert attempts == sorted(store.selections(run.id))
        calls = Counter((call.attempt, call.turn) for call in store.calls(run.id))
        assert calls == self.asked
        assert {1} == set(calls.values())
        assert ([], {}) == (store.lost_calls(run.id), store.unanswered(run.id))
        ended = store.ended(run.id)
        assert ended is not None
        assert "attempts" == ended.kind


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_runs_wait_for_a_server_that_goes_away_and_lose_nothing(
    postgres: Server, store: Store, how: str
) -> None:
    outages: list[asyncio.Task[None]] = []

    async def outage() -> None:
        await asyncio.sleep(0.002)
        await asyncio.to_thread(postgres.stop if how == "stop" else postgres.kill)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(postgres.start)

    def at(asked: int) -> None:
        if asked in (7, 18):
            outages.append(asyncio.create_task(outage()))

    runs = [samples.run(attempts=12, parallel=3, id=f"relu-{n}", seed=n) for n in range(4)]
    all_working = [Working(store, runs[0], at), *(Working(store, run) for run in runs[1:])]
    await asyncio.gather(*(each.work() for each in all_working))
    await asyncio.gather(*outages)

    for each in all_working:
        each.check()
    notices = [text for each in all_working for text in each.notices]
    waiting = [text for text in notices if text]
    assert 1 <= len(waiting) <= len(outages) == 2, "it is said once for each"
    assert "waiting for the store postgresql+psycopg://stark@/postgres" in waiting[0]
    assert len(waiting) == notices.count("")


def undisturbed(run: Run) -> tuple[list[Node], list[Call]]:
    with Store.open("sqlite://") as store:
        asyncio.run(samples.work(store, run))
        return store.nodes(run.id), store.calls(run.id)


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_without_a_confirmation_is_repeated_only_if_it_failed(
    store: Store, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    commit, count = Transaction.commit, itertools.count(1)

    def cut_off(self: Transaction) -> None:
        if not self.leases or next(count) % 3:
            commit(self)
            return
        if committed:
            commit(self)
        else:
            self.connection.rollback()
            self.connection.close()
        failure = TryAgain("the connection was lost")
        failure.unconfirmed = (tuple(self.leases.values()), self.token)
        raise failure

    monkeypatch.setattr(Transaction, "commit", cut_off)
    run = samples.run(attempts=6)
    working = Working(store, run)
    asyncio.run(working.work())
    monkeypatch.setattr(Transaction, "commit", commit)

    working.check()
    nodes, calls = undisturbed(run)
    assert nodes == store.nodes(run.id)
    assert [call.reply.text for call in calls] == [call.reply.text for call in store.calls(run.id)]


async def test_a_write_that_the_database_undid_takes_its_group_along_and_all_are_repeated(
    store: Store,
) -> None:
    """As a deadlock does. What a repeated block had written before is undone with it."""
    run = samples.run()
    store.create_run(run)
    tries: Counter[int] = Counter()

    def begin(attempt: int) -> None:
        tries[attempt] += 1
        store.begin_attempt(run.id, attempt, SELECTION)
        if attempt == 2 and tries[2] == 1:
            raise TryAgain("deadlock detected")

    await asyncio.gather(*(store.retried(begin, attempt) for attempt in (1, 2, 3)))

    assert [1, 2, 3] == list(store.selections(run.id))
    assert {1: 2, 2: 2, 3: 1} == tries


async def test_a_server_that_stays_away_ends_the_run_with_what_to_do(
    postgres: Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "SERVER_TIMEOUT_S", 0.3)
    working = Working(store, samples.run(attempts=6), lambda asked: asked != 3 or postgres.stop())
    try:
        with pytest.raises(StoreError, match="start its server and resume the run"):
            await working.work()
    finally:
        postgres.start()
    assert ["waiting for the store"] == [text[:21] for text in working.notices]

    before = {(call.attempt, call.turn) for call in store.calls(working.run.id)}
    resumed = Working(store, working.run)
    await resumed.work()
    assert not before & set(resumed.asked)
    assert list(range(1, 7)) == sorted(node.id for node in store.nodes(working.run.id))


async def test_a_write_that_never_succeeds_is_given_up(store: Store) -> None:
    def crash() -> None:
        raise TryAgain("terminating connection because of a crash of another server process")

    with pytest.raises(StoreError, match="crash of another server process"):
        await store.retried(crash)


async def test_a_write_that_fails_beside_another_takes_no_mark_of_the_lease_along(
    store: Store,
) -> None:
    runs = [samples.run(id=name) for name in ("one", "other")]
    for run in runs:
        store.create_run(run)

    def begin(run: Run, attempt: int) -> None:
        store.begin_attempt(run.id, attempt, SELECTION)

    with store.exclusive("one"), store.exclusive("other"):
        begin(runs[1], 1)
        writes = [(runs[0], 1), (runs[1], 1), (runs[1], 2)]
        writing = [store.retried(begin, run, attempt) for run, attempt in writes]
        ended = await asyncio.gather(*writing, return_exceptions=True)
        assert [type(None), StoreError, type(None)] == [type(each) for each in ended]
        with store._database.reading("the tokens") as connection:
            tokens = connection.scalars(select(LEASES.c.token)).all()
        assert 2 == len(tokens)
        assert 1 == len(set(tokens)), "both leases were marked by the transaction"
