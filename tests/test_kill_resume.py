"""Killed at twenty random moments or interrupted, a run resumes with every stored node intact and no reply bought twice.

A reply that is stored is never asked for again. A question in flight at a kill, of which each attempt has at most one,
is charged as reserved and asked once more; one in flight at an interrupt is awaited.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import pytest

import loop_samples as samples
from kill_resume_worker import LEASE_S
from stark.core.call import Call, Lost, spent_by_role
from stark.core.errors import Held
from stark.core.node import Node, Selection
from stark.core.run import Ended, Run
from stark.core.usage import Spent
from stark.correspondence import Replies
from stark.store import Store, leases
from support.postgres import Server

WORKER = Path(__file__).parent / "kill_resume_worker.py"
RUN = samples.run().id
ATTEMPTS = 12
REPLY_S = 0.004

Turn = tuple[int, int]
"""An attempt and a turn of it: the name of a question."""


class Stored(NamedTuple):
    """All that a store holds of the run."""

    selections: dict[int, Selection]
    calls: dict[Turn, Call]
    nodes: list[Node]
    lost: list[Lost]
    ended: Ended | None


NOTHING = Stored({}, {}, [], [], None)


def stored(url: str) -> Stored:
    with Store.open(url) as store:
        if not store.holds(RUN):
            return NOTHING
        found = Stored(
            store.selections(RUN),
            {(call.attempt, call.turn): call for call in store.calls(RUN)},
            store.nodes(RUN),
            store.lost_calls(RUN),
            store.ended(RUN),
        )
        paid = spent_by_role([*found.calls.values(), *found.lost])
        spent = store.spent(RUN).get(RUN, {})
        assert {role: _rounded(one) for role, one in paid.items()} == {
            role: _rounded(one) for role, one in spent.items()
        }
        return found


def _rounded(spent: Spent) -> Spent:
    dollars, seconds = round(spent.dollars, 9), round(spent.seconds, 9)
    return spent.model_copy(update={"dollars": dollars, "seconds": seconds})


class Worker:
    """A process that works on the run."""

    def __init__(self, lines: IO[str]) -> None:
        self._lines = lines
        self.pid = int(self.say().removeprefix("pid "))
        self.asked: list[Turn] = []

    def say(self) -> str:
        """Its next line."""
        line = self._lines.readline()
        assert line.endswith("\n"), "the worker died"
        words = line.split()
        if words[0] == "asked":
            self.asked.append((int(words[1]), int(words[2])))
        return line.strip()

    def stopped_by(self, signal: int | None) -> int:
        """Its exit status after this signal, if any."""
        if signal is not None:
            os.kill(self.pid, signal)
        while not (line := self.say()).startswith("ended"):
            pass
        return int(line.split()[1])


class Workers:
    """Starts one worker after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(
        self, url: str, parallel: int, attempts: int = ATTEMPTS, reply_s: float = REPLY_S
    ) -> Worker:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{url} {parallel} {attempts} {reply_s}\n")
        self._process.stdin.flush()
        return Worker(self._process.stdout)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    command = [sys.executable, str(WORKER)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield Workers(process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/stark.db"


@pytest.fixture
def server_url(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty database on PostgreSQL, where leases last as long as the workers'."""
    monkeypatch.setattr(leases, "LEASE_S", LEASE_S)
    return postgres.url()


def check_session(asked: list[Turn], before: Stored, after: Stored, parallel: int) -> set[Turn]:
    """What holds between two kills; returns the questions in flight at the second."""
    assert before.nodes == after.nodes[: len(before.nodes)]
    assert before.calls.items() <= after.calls.items()
    assert before.selections.items() <= after.selections.items()
    assert before.lost == after.lost[: len(before.lost)]
    assert len(set(asked)) == len(asked)
    assert not before.calls.keys() & set(asked), "a stored reply was asked for again"
    assert after.calls.keys() - before.calls.keys() <= set(asked)
    in_flight = set(asked) - after.calls.keys()
    assert len({attempt for attempt, _ in in_flight}) == len(in_flight) <= parallel
    return in_flight


def check_whole(run: Stored, attempts: int = ATTEMPTS) -> None:
    """What holds of a run that has ended: each attempt once, with all its replies."""
    assert list(range(1, attempts + 1)) == sorted(node.id for node in run.nodes)
    assert list(range(1, attempts + 1)) == sorted(run.selections)
    assert Ended(kind="attempts", detail=f"{attempts} attempts made") == run.ended
    for node in run.nodes:
        turns = [turn for attempt, turn in run.calls if attempt == node.id]
        assert list(range(len(turns))) == sorted(turns) != []


@pytest.mark.slow
@pytest.mark.parametrize(("parallel", "kills", "attempts"), [(1, 8, 30), (3, 12, 50)])
def test_killed_at_random_moments_a_run_loses_nothing_and_buys_no_reply_twice(
    workers: Workers, url: str, parallel: int, kills: int, attempts: int
) -> None:
    moments = random.Random(parallel)
    bill: Counter[Turn] = Counter()
    in_flight: Counter[Turn] = Counter()
    before = NOTHING
    for _ in range(kills):
        worker = workers.start(url, parallel, attempts)
        for _ in range(moments.randint(0, 2 + parallel)):
            worker.say()
        time.sleep(moments.uniform(0, 0.05))
        assert -signal.SIGKILL == worker.stopped_by(signal.SIGKILL), "it ended before"
        after = stored(url)
        in_flight.update(check_session(worker.asked, before, after, parallel))
        bill.update(worker.asked)
        before = after

    worker = workers.start(url, parallel, attempts)
    assert 0 == worker.stopped_by(None)
    after = stored(url)
    assert not check_session(worker.asked, before, after, parallel)
    bill.update(worker.asked)
    check_whole(after, attempts)
    assert {turn: 1 + in_flight[turn] for turn in after.calls} == bill
    # A process may also be killed after it stored a question and before it sent it.
    assert in_flight.total() <= len(after.lost) <= parallel * kills
    assert in_flight or parallel == 1, "on a busy machine, no kill may hit the one call in flight"
    assert all(lost.reserved.tokens > 0 < lost.reserved.dollars for lost in after.lost)
    if parallel == 1:
        assert never_interrupted(attempts) == (after.nodes, list(after.calls.values()))


def never_interrupted(attempts: int) -> tuple[list[Node], list[Call]]:
    """The nodes and calls of the same run, worked on by one process that nothing disturbs."""
    replies, _ = samples.scripted(dollars=None, price=samples.PRICE, delay_s=REPLY_S)
    with Store.open("sqlite://") as store:
        asyncio.run(samples.work(store, samples.run(attempts=attempts), replies=replies))
        return store.nodes(RUN), store.calls(RUN)


@pytest.mark.slow
def test_an_interrupt_awaits_the_eight_calls_in_flight_and_the_run_goes_on_later(
    workers: Workers, url: str
) -> None:
    first = workers.start(url, parallel=8, reply_s=0.8)
    while len(first.asked) < 8:
        first.say()
    assert 130 == first.stopped_by(signal.SIGINT)
    interrupted = stored(url)

    second = workers.start(url, parallel=8)
    assert 0 == second.stopped_by(None)

    turns = [(attempt, 0) for attempt in range(1, 9)]
    assert turns == sorted(first.asked) == sorted(interrupted.calls)
    assert ([], []) == (interrupted.nodes, interrupted.lost)
    after = stored(url)
    check_session(second.asked, interrupted, after, 8)
    check_whole(after)
    assert dict.fromkeys(after.calls, 1) == Counter(first.asked + second.asked)


def test_a_second_interrupt_stops_at_once_and_the_calls_in_flight_are_lost(
    workers: Workers, url: str
) -> None:
    worker = workers.start(url, parallel=8, reply_s=30)
    while len(worker.asked) < 8:
        worker.say()
    os.kill(worker.pid, signal.SIGINT)
    while worker.say() != "draining":
        pass
    assert 130 == worker.stopped_by(signal.SIGINT)

    found = stored(url)
    assert ({}, 8) == (found.calls, len(found.lost))


def test_a_second_process_is_refused_until_the_first_is_killed(workers: Workers, url: str) -> None:
    replies, model = samples.scripted()
    worker = workers.start(url, 1)
    while not worker.asked:
        worker.say()
    with Store.open(url) as store:
        with pytest.raises(Held, match="by another process"):
            asyncio.run(samples.work(store, store.run(RUN), replies=replies))
        assert [] == model.asked

        worker.stopped_by(signal.SIGKILL)
        asyncio.run(samples.work(store, store.run(RUN), replies=replies))
    check_whole(stored(url))


def test_on_postgresql_a_run_is_refused_until_the_lease_of_its_killed_process_ends(
    workers: Workers, server_url: str
) -> None:
    replies, model = samples.scripted()
    worker = workers.start(server_url, 1)
    while len(worker.asked) < 3:
        worker.say()
    worker.stopped_by(signal.SIGKILL)
    with Store.open(server_url) as store:
        run, since = store.run(RUN), time.monotonic()
        said = rf"by process {worker.pid} on \S+, whose lease ends in [12] s unless renewed"
        with pytest.raises(Held, match=said):
            asyncio.run(samples.work(store, run, replies=replies))
        assert [] == model.asked
        resumed_soon(store, run, replies)
        assert time.monotonic() - since < LEASE_S + 5.0
    check_whole(stored(server_url))


def test_on_postgresql_a_process_that_stood_still_finds_its_run_taken_over_and_writes_nothing(
    workers: Workers, server_url: str
) -> None:
    worker = workers.start(server_url, 3, reply_s=0.2)  # it is not done before it is stopped
    while len(worker.asked) < 5:
        worker.say()
    os.kill(worker.pid, signal.SIGSTOP)
    with Store.open(server_url) as store:
        resumed_soon(store, store.run(RUN), samples.scripted(dollars=None, price=samples.PRICE)[0])
    before = stored(server_url)
    check_whole(before)

    os.kill(worker.pid, signal.SIGCONT)
    while not (said := worker.say()).startswith(("held", "ended")):
        pass

    assert (
        f"held run {RUN} was taken over by another process, because this process was away" in said
    )
    assert Held.exit_code == worker.stopped_by(None)
    assert before == stored(server_url)


def resumed_soon(store: Store, run: Run, replies: Replies) -> None:
    """Work on the run as soon as its lease has ended."""
    while True:
        try:
            asyncio.run(samples.work(store, run, replies=replies))
            return
        except Held:
            time.sleep(LEASE_S / 20)
