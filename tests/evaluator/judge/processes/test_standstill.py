from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from stark.evaluator.judge.processes import standstill
from stark.evaluator.judge.processes.standstill import NotStopped, Tree
from stark.evaluator.judge.processes.watch import state_of

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


def used_by(tree: Tree) -> list[int]:
    """The processor time of all that stands and lives."""
    return [used for used in tree.used_ns.values() if used is not None]


@pytest.mark.parametrize("program", [ENDLESS, SLEEPS_IN_THREADS])
def test_what_is_stopped_uses_no_processor_and_goes_on_when_it_is_told_to(program: str) -> None:
    with running(program) as pid:
        tree = Tree(pid)
        for _ in range(5):
            since = tree.stop()
            used_ns = used_by(tree)
            assert pid in tree.used_ns
            time.sleep(0.01)
            assert tree.stood()
            again = tree.stop()
            assert used_ns == used_by(tree)
            assert since < again
            tree.go_on()


def test_a_process_that_works_goes_on_working() -> None:
    with running(ENDLESS) as pid:
        tree = Tree(pid)
        tree.stop()
        before_ns = used_by(tree)
        tree.go_on()
        time.sleep(0.05)
        tree.stop()
        assert before_ns < used_by(tree)


def test_a_process_that_someone_else_continued_is_found_out() -> None:
    with running(ENDLESS) as pid:
        tree = Tree(pid)
        tree.stop()
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
        assert not tree.stood()


@pytest.mark.parametrize("program", [CONTINUED_BY_ITS_OWN_THREADS, CONTINUED_BY_EACH_OTHER])
def test_nothing_keeps_itself_running_by_signals(program: str) -> None:
    with running(program) as pid:
        tree = Tree(pid)
        try:
            tree.stop()
        except NotStopped:
            return
        used_ns = used_by(tree)
        time.sleep(0.05)
        tree.stop()
        assert used_ns == used_by(tree)


def test_a_tree_that_forks_for_ever_is_not_waited_for_for_ever() -> None:
    with running(FORKS_AND_ENDS_FOR_EVER) as pid:
        begin = time.monotonic()
        with suppress(NotStopped):
            Tree(pid).stop()
        assert time.monotonic() - begin < 30


def test_a_process_that_ended_before_it_could_be_stopped_may_have_started_another() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    with running("time.sleep(60)") as pid:
        tree = Tree(pid)
        tree.stop()

        assert tree._meet({pid, ended.pid})
        assert not tree._meet({pid})


def test_a_tree_with_other_processes_than_those_that_stopped_has_not_stood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running("time.sleep(60)") as pid:
        tree = Tree(pid)
        tree.stop()
        assert tree.stood()
        other = SimpleNamespace(processes=frozenset({pid, os.getpid()}))
        monkeypatch.setattr(standstill, "use_of_tree", lambda root: other)

        assert not tree.stood()


def test_a_process_that_is_gone_stands() -> None:
    with running("") as pid:
        time.sleep(0.2)
    tree = Tree(pid)
    tree.stop()

    assert {pid: None} == tree.used_ns
    tree.go_on()


TWO_CHILDREN = """
for _ in range(2):
    if os.fork() == 0: time.sleep(60)
time.sleep(60)
"""


def test_a_number_that_has_become_anothers_is_not_signalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process of the tree ends, and its number goes to a stranger before the judge signals it."""
    with running(TWO_CHILDREN) as pid, running(ENDLESS) as stranger:
        real = standstill.use_of_tree

        def outdated(root: int) -> object:
            used = real(root)
            return dataclasses.replace(used, processes=used.processes | {stranger})

        monkeypatch.setattr(standstill, "PATIENCE_S", 0.2)
        monkeypatch.setattr(standstill, "use_of_tree", outdated)
        monkeypatch.setattr(standstill, "_is_stopped", lambda pid: True)  # as if it had ended
        tree = Tree(pid)
        with suppress(NotStopped):  # the stranger's processor time grows
            tree.stop()
        monkeypatch.undo()

        assert "R" == state_of(f"/proc/{stranger}")
        assert pid in tree._handles
        assert 3 == len(tree._handles)
        tree.close()


def test_handles_of_processes_that_have_ended_are_closed() -> None:
    with running("os.fork() == 0 and os._exit(0)\nos.wait()\ntime.sleep(60)") as pid:
        tree = Tree(pid)
        tree.stop()
        tree.go_on()
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        for _ in range(3):
            tree.stop()
        tree.go_on()

        assert before == len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        tree.close()
        assert before == len(os.listdir("/proc/self/fd")) + 1  # noqa: PTH208
