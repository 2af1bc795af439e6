"""What other processes, and the end of one, may do to a store."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import store_samples as samples
from sqlalchemy import func, select

from stark.core.errors import StoreError
from stark.store import Store
from stark.store.database import CREATING
from stark.store.schema import Base

RUN = "relu-1a"
WRITER = Path(__file__).parent / "store_writer.py"


@contextmanager
def writer(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that works on a store; killed with SIGKILL when the block ends."""
    command = [sys.executable, str(WRITER), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def killed_after(lines: int, delay_s: float, url: str) -> list[str]:
    """What a writer had printed when it was killed that long after so many lines."""
    with writer("nodes", url, RUN, "1000000") as process:
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(lines)]
        time.sleep(delay_s)
        process.kill()
        printed += process.stdout.readlines()
    return [line for line in printed if line.endswith("\n")]


def stored(store: Store) -> set[str]:
    """Everything in the store, as the writer prints it."""
    begun = {f"begun {attempt}\n" for attempt in store.selections(RUN)}
    calls = {f"call {call.attempt} {call.turn}\n" for call in store.calls(RUN)}
    nodes = {f"node {node.id}\n" for node in store.nodes(RUN)}
    return begun | calls | nodes


@pytest.mark.slow
def test_nothing_that_was_stored_is_lost_when_the_process_is_killed(shared_url: str) -> None:
    moments = random.Random(1)
    printed: list[str] = []
    for _ in range(2 if "postgresql" in shared_url else 6):
        printed += killed_after(moments.randint(1, 30), moments.uniform(0, 0.02), shared_url)
        with Store.open(shared_url) as store:
            assert set(printed) <= stored(store)
            assert len(store.unfinished(RUN)) <= 1
            for node in store.nodes(RUN):
                assert node.candidate is not None
                assert node.candidate.source == f"source {node.id}\n" * 99
                assert len(store.calls(RUN, node.id)) == 2
    # Nothing was done twice by the processes that went on after a kill.
    assert len(printed) == len(set(printed))


@pytest.mark.slow
def test_a_run_is_worked_on_by_one_process_until_it_is_killed(shared_url: str) -> None:
    with Store.open(shared_url) as store:
        with writer("hold", shared_url, RUN, "0.5") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            with (
                pytest.raises(StoreError, match=f"run {RUN} is being worked on by "),
                store.exclusive(RUN),
            ):
                pass
            with store.exclusive("another-run"):
                pass
        with _soon(store):
            pass


def test_a_lock_is_free_again_when_its_block_has_ended(shared_url: str) -> None:
    with Store.open(shared_url) as store, Store.open(shared_url) as other:
        with pytest.raises(KeyError), store.exclusive(RUN):
            with pytest.raises(StoreError), other.exclusive(RUN):
                pass
            raise KeyError
        with other.exclusive(RUN):
            pass


def test_a_store_in_memory_needs_no_lock() -> None:
    with Store.open("sqlite://") as store, store.exclusive(RUN):
        store.create_run(samples.run(RUN))
        assert store.run(RUN).id == RUN


def test_creating_waits_for_another_that_creates(shared_url: str) -> None:
    with Store.open(shared_url) as store, ThreadPoolExecutor(1) as pool:
        database = store._database
        Base.metadata.drop_all(database._engine)
        with database.writing("creating") as connection:
            if database._on_server:
                connection.execute(select(func.pg_advisory_xact_lock(CREATING)))
            opening = pool.submit(Store.open, shared_url)
            with pytest.raises(TimeoutError):
                opening.result(timeout=0.1)
        opening.result(timeout=30).close()
        assert [] == store.summaries()


@pytest.mark.slow
def test_two_processes_make_and_fill_one_store_at_once(shared_url: str) -> None:
    runs = ("first", "second")
    with (
        writer("nodes", shared_url, "first", "30") as one,
        writer("nodes", shared_url, "second", "30") as other,
    ):
        assert (one.wait(timeout=60), other.wait(timeout=60)) == (0, 0)
    with Store.open(shared_url) as store:
        for run_id in runs:
            assert list(range(1, 31)) == [node.id for node in store.nodes(run_id)]
            assert len(store.calls(run_id)) == 60


@contextmanager
def _soon(store: Store) -> Iterator[None]:
    """The run's lock, once its holder's lease has ended."""
    for _ in range(100):
        try:
            with store.exclusive(RUN):
                yield
                return
        except StoreError:
            time.sleep(0.02)
    pytest.fail("the lock outlived its process")
