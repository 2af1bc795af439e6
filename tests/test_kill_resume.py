"""Killed at ten random moments, a run resumes each time with every stored node intact and no attempt paid twice.

A question is paid for as soon as it is asked. What "not twice" can mean is therefore: a reply
that is stored is never asked for again, and a question in flight at a kill, of which each attempt
has at most one, is asked once more.
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
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from stark.optimize import optimize
from stark.replies import LiveReplies

import loop_samples as samples
from stark.core.call import Call
from stark.core.errors import StoreError
from stark.core.node import Node, Selection
from stark.core.usage import Usage
from stark.store import Store
from stark.testing.executor import FakeExecutor

WORKER = Path(__file__).parent / "kill_resume_worker.py"
RUN = samples.run().id
KILLS = 10
ATTEMPTS = 60

Turn = tuple[int, int]
"""An attempt and a turn of it: the name of a question."""


class Stored(NamedTuple):
    """All that a store holds of the run."""

    selections: dict[int, Selection]
    calls: dict[Turn, Call]
    nodes: list[Node]
    ended: str | None


def stored(url: str) -> Stored:
    with Store.open(url) as store:
        return Stored(
            store.selections(RUN),
            {(call.attempt, call.turn): call for call in store.calls(RUN)},
            store.nodes(RUN),
            next((summary.ended_reason for summary in store.summaries()), None),
        )


@contextmanager
def worker(url: str, parallel: int) -> Iterator[subprocess.Popen[str]]:
    """A process that works on the run; its whole group is killed with SIGKILL when the block ends."""
    command = [sys.executable, str(WORKER), url, str(parallel), str(ATTEMPTS)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def killed_after(lines: int, delay_s: float, url: str, parallel: int) -> list[Turn]:
    """What a worker asked until it was killed, that long after so many lines."""
    with worker(url, parallel) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(1 + lines)]
        time.sleep(delay_s)
        os.killpg(process.pid, signal.SIGKILL)
        said += process.stdout.readlines()
        assert -signal.SIGKILL == process.wait(), "it ended before it could be killed"
    return asked(said)


def asked(lines: list[str]) -> list[Turn]:
    """The questions among a worker's lines."""
    words = [line.split() for line in lines if line.startswith("asked") and line.endswith("\n")]
    return [(int(attempt), int(turn)) for _, attempt, turn in words]


def check_session(questions: list[Turn], before: Stored, after: Stored, parallel: int) -> None:
    """What holds between two kills."""
    assert before.nodes == after.nodes[: len(before.nodes)]
    assert before.calls.items() <= after.calls.items()
    assert before.selections.items() <= after.selections.items()
    assert len(set(questions)) == len(questions)
    assert not before.calls.keys() & set(questions), "a stored reply was asked for again"
    assert after.calls.keys() - before.calls.keys() <= set(questions)
    in_flight = set(questions) - after.calls.keys()
    assert len({attempt for attempt, _ in in_flight}) == len(in_flight) <= parallel


def check_whole(run: Stored) -> None:
    """What holds of a run that has ended: each attempt once, with all that it cost."""
    assert list(range(1, ATTEMPTS + 1)) == sorted(node.id for node in run.nodes)
    assert list(range(1, ATTEMPTS + 1)) == sorted(run.selections)
    assert f"{ATTEMPTS} attempts made" == run.ended
    for node in run.nodes:
        turns = [turn for attempt, turn in run.calls if attempt == node.id]
        assert list(range(len(turns))) == sorted(turns)
        paid = (run.calls[node.id, turn].reply.usage for turn in turns)
        assert sum(paid, Usage()) == node.usage


@pytest.mark.parametrize("parallel", [1, 3])
def test_killed_at_ten_random_moments_a_run_loses_nothing_and_pays_nothing_twice(
    tmp_path: Path, parallel: int
) -> None:
    url = f"sqlite:///{tmp_path}/stark.db"
    moments = random.Random(parallel)
    bill: Counter[Turn] = Counter()
    lost: Counter[Turn] = Counter()
    before = Stored({}, {}, [], None)
    for _ in range(KILLS):
        lines, delay_s = moments.randint(0, 6 + 2 * parallel), moments.uniform(0, 0.02)
        questions = killed_after(lines, delay_s, url, parallel)
        after = stored(url)
        sys.stdout.write(f"killed {delay_s:.3f} s after {lines} lines: {len(after.nodes)} nodes\n")
        check_session(questions, before, after, parallel)
        bill.update(questions)
        lost.update(set(questions) - after.calls.keys())
        before = after

    with worker(url, parallel) as process:
        out, _ = process.communicate(timeout=60)
        assert 0 == process.returncode

    questions, after = asked(out.splitlines(keepends=True)), stored(url)
    check_session(questions, before, after, parallel)
    check_whole(after)
    bill.update(questions)
    assert {turn: 1 + lost[turn] for turn in after.calls} == bill
    if parallel == 1:
        assert never_interrupted() == (after.nodes, list(after.calls.values()))


def never_interrupted() -> tuple[list[Node], list[Call]]:
    """The nodes and calls of the same run, worked on by one process that nothing disturbs."""
    run = samples.run(attempts=ATTEMPTS)
    with Store.open("sqlite://") as store:
        store.create_run(run)
        replies, _ = samples.scripted()
        watch = samples.Notes()
        asyncio.run(optimize(run, store, FakeExecutor(), replies, watch))
        return store.nodes(RUN), store.calls(RUN)


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/stark.db"

    def also(store: Store, replies: LiveReplies) -> object:
        run = store.run(RUN)
        watch, executor = samples.Notes(), FakeExecutor()
        return asyncio.run(optimize(run, store, executor, replies, watch))

    replies, model = samples.scripted()
    with worker(url, 1) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("asked"):
            assert process.poll() is None
        with Store.open(url) as store, pytest.raises(StoreError, match="by another process"):
            also(store, replies)
        assert process.poll() is None
    assert [] == model.asked
    with Store.open(url) as store:
        also(store, replies)
    check_whole(stored(url))
