"""Leases: who holds a run on PostgreSQL, until when, and what a former holder can still write."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime

import pytest
import store_samples as samples
from sqlalchemy import text

from stark.core.errors import Held, StoreError
from stark.core.run import Ended
from stark.store import Store, leases
from support.postgres import Server

RUN = "relu-1a"


@pytest.fixture
def two(postgres: Server) -> Iterator[tuple[Store, Store]]:
    """One store, opened twice. Its leases last longer than any test, unless a test ends them."""
    url = postgres.url()
    with Store.open(url) as one, Store.open(url) as other:
        one.create_run(samples.run(RUN))
        yield one, other


def end_leases(store: Store) -> None:
    """End all leases, as if their time had passed."""
    with store._database._engine.begin() as connection:
        connection.execute(text("UPDATE leases SET ends = clock_timestamp() - interval '1 second'"))


def ends(store: Store) -> list[datetime]:
    """When each lease ends, oldest lease first."""
    with store._database.reading("reading leases") as connection:
        return list(connection.scalars(text("SELECT ends FROM leases ORDER BY number")))


def stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no lease be renewed, as if its process stood still."""
    monkeypatch.setattr(leases.Leases, "_renew", lambda self, ended: None)


def test_a_run_is_refused_with_its_holder_and_the_end_of_the_lease(
    two: tuple[Store, Store],
) -> None:
    one, other = two
    with one.exclusive(RUN):
        said = (
            rf"run {RUN} is being worked on by process \d+ on \S+, whose lease ends in 30 s unless renewed; wait for it "
            "or stop it"
        )
        with pytest.raises(Held, match=said), other.exclusive(RUN):
            pass


def test_leases_are_renewed_for_as_long_as_they_are_held(
    two: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    monkeypatch.setattr(leases, "LEASE_S", 3.0)  # renewed every second
    with one.exclusive(RUN), one.exclusive("another"):
        for _ in range(2):
            before = ends(other)
            assert 2 == len(before)
            while any(now <= then for now, then in zip(ends(other), before, strict=True)):
                time.sleep(0.05)
        for name in (RUN, "another"):
            with pytest.raises(Held), other.exclusive(name):
                pass
    with other.exclusive(RUN), other.exclusive("another"):
        pass


def test_a_former_holder_writes_nothing(
    two: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    one.begin_attempt(RUN, 1, samples.IMPROVE_ROOT)
    asked = samples.ask(one, RUN)
    stand_still(monkeypatch)
    with one.exclusive(RUN):
        one.note_elapsed(RUN, 1.0)
        end_leases(other)
        one.note_elapsed(RUN, 2.0)  # nobody has taken the run over, so this renews the lease
        with pytest.raises(Held), other.exclusive(RUN):
            pass
        end_leases(other)
        with other.exclusive(RUN):
            before = other.progress(), other.calls(RUN), other.spent(RUN)
            writes = (
                lambda: one.begin_attempt(RUN, 2, samples.IMPROVE_ROOT),
                lambda: samples.ask(one, RUN),
                lambda: one.settle_call(RUN, asked, "lost"),
                lambda: one.add_call(RUN, samples.call(1), asked, 3.0),
                lambda: one.add_node(RUN, samples.node(1), 3.0),
                lambda: one.add_promotion(RUN, 1, samples.correct(1.0)),
                lambda: one.set_reference(RUN, samples.reference()),
                lambda: one.add_elsewhere(RUN, 1, "another kind", samples.correct(0.5)),
                lambda: one.reconfigure(samples.run(RUN)),
                lambda: one.note_elapsed(RUN, 3.0),
                lambda: one.lose_calls(RUN),
                lambda: one.reopen_run(RUN),
                lambda: one.end_run(RUN, Ended(kind="exhausted", detail="")),
            )
            for write in writes:
                with pytest.raises(
                    Held,
                    match=rf"run {RUN} was taken over by process \d+ on .* stores nothing more",
                ):
                    write()
            assert before == (other.progress(), other.calls(RUN), other.spent(RUN))
        with pytest.raises(Held, match="was taken over by another process"):
            one.note_elapsed(RUN, 3.0)
    with one.exclusive(RUN):
        one.note_elapsed(RUN, 4.0)


def test_nothing_is_taken_over_in_the_middle_of_a_write(
    two: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stands still there does not make others wait, either."""
    one, other = two
    stand_still(monkeypatch)
    with one.exclusive(RUN):
        end_leases(other)
        with one._writing("standing still", RUN):
            begun = time.monotonic()
            with pytest.raises(Held, match="ends in 0 s"), other.exclusive(RUN):
                pass
            assert time.monotonic() - begun < 1.0
        end_leases(other)
        with other.exclusive(RUN):
            pass


def test_a_lease_whose_confirmation_was_lost_is_not_in_the_way(two: tuple[Store, Store]) -> None:
    one, other = two
    assert one._database._leases is not None
    one._database._leases._take(f"run {RUN}")
    with pytest.raises(Held), other.exclusive(RUN):
        pass
    with one.exclusive(RUN), pytest.raises(Held), one.exclusive(RUN):
        pass


def test_looking_whether_a_run_is_worked_on_takes_nothing_over(
    two: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder was away for longer than its lease, and nobody has taken the run over."""
    stand_still(monkeypatch)
    holder, reader = two

    assert not reader.worked_on(RUN)
    with holder.exclusive(RUN):
        assert reader.worked_on(RUN)
        end_leases(holder)
        assert not reader.worked_on(RUN)
        holder.note_elapsed(RUN, 2.0)
        assert reader.worked_on(RUN), "its write has renewed the lease"


def test_leases_leave_no_rows(two: tuple[Store, Store]) -> None:
    one, _ = two
    with ExitStack() as held:
        for n in range(5):
            held.enter_context(one.exclusive(f"run-{n}"))
    with one._database.reading("counting") as connection:
        assert 0 == connection.scalar(text("SELECT count(*) FROM leases"))


async def test_a_run_is_released_although_its_last_write_is_not_committed(
    two: tuple[Store, Store],
) -> None:
    one, other = two

    async def fail_beside_a_write() -> None:
        with one.exclusive(RUN), one._database._group.joining():
            one.note_elapsed(RUN, 5.0)

    await fail_beside_a_write()
    with other.exclusive(RUN):
        assert 5.0 == other.elapsed_s(RUN)


def test_a_server_that_is_away_is_an_error_with_a_reason(postgres: Server) -> None:
    url = postgres.url().replace("host=", "host=/nowhere")
    with pytest.raises(StoreError, match=r"opening the store .* failed .*nowhere"):
        Store.open(url)
