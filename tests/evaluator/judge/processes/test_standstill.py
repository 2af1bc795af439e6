from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from stark.evaluator.judge.processes.standstill import NotStopped, Standstill, continue_tree, stop

ENDLESS = "while True: pass"

SLEEPS_IN_THREADS = """
for _ in range(20):
    threading.Thread(target=time.sleep, args=(60,)).start()
"""

CONTINUED_BY_ITS_OWN_THREADS = """
def endless():
    me = os.getpid()
    while True: os.kill(me, signal.SIGCONT)

for _ in range(3):
    threading.Thread(target=endless).start()
"""

CONTINUED_BY_EACH_OTHER = """
parent = os.getpid()
child = os.fork()
other = child or parent
while True: os.kill(other, signal.SIGCONT)
"""

FORKS_AND_ENDS_FOR_EVER = """
while True:
    if os.fork(): os._exit(0)
"""


@contextmanager
def running(program: str) -> Iterator[int]:
    """A program that has begun, ended with whatever it started."""
    head = "import os, signal, threading, time\nprint(flush=True)\n"
    with subprocess.Popen(
        [sys.executable, "-c", head + program], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05)
        try:
            yield process.pid
        finally:
            with suppress(
                ProcessLookupError
            ):  # at once for the whole group: one that forks outruns anything else
                os.killpg(process.pid, signal.SIGKILL)


def used_by(standstill: Standstill) -> list[int]:
    """The processor time of all that stands and lives."""
    return [used for used in standstill.used_ns.values() if used is not None]


@pytest.mark.parametrize("program", [ENDLESS, SLEEPS_IN_THREADS])
def test_what_is_stopped_uses_no_processor_and_goes_on_when_it_is_told_to(program: str) -> None:
    with running(program) as pid:
        for _ in range(5):
            standing = stop(pid)
            time.sleep(0.01)
            again = stop(pid, standing.used_ns)
            assert used_by(standing) == used_by(again)
            assert standing.since < again.since
            continue_tree(again)
    assert pid in standing.used_ns


def test_a_process_that_works_goes_on_working() -> None:
    with running(ENDLESS) as pid:
        before = stop(pid)
        continue_tree(before)
        time.sleep(0.05)
        assert used_by(before) < used_by(stop(pid))


def test_a_process_that_someone_else_continued_is_found_out() -> None:
    with running(ENDLESS) as pid:
        standing = stop(pid)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
        with pytest.raises(NotStopped, match="ran after the judge had stopped it"):
            continue_tree(standing)


@pytest.mark.parametrize("program", [CONTINUED_BY_ITS_OWN_THREADS, CONTINUED_BY_EACH_OTHER])
def test_nothing_keeps_itself_running_by_signals(program: str) -> None:
    with running(program) as pid:
        try:
            standing = stop(pid)
        except NotStopped:
            return
        time.sleep(0.05)
        assert used_by(standing) == used_by(stop(pid, standing.used_ns))


def test_a_tree_that_forks_for_ever_is_not_waited_for_for_ever() -> None:
    with running(FORKS_AND_ENDS_FOR_EVER) as pid:
        begin = time.monotonic()
        with suppress(NotStopped):
            stop(pid)
        assert time.monotonic() - begin < 30


def test_a_process_that_is_gone_stands() -> None:
    with running("") as pid:
        time.sleep(0.2)
    standing = stop(pid)

    assert {pid: None} == standing.used_ns
    continue_tree(standing)
