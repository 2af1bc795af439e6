from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stark.evaluator.judge.processes.placing import Placed

WORKING = """
import os, sys, threading, time
burst = threading.Event()
turns = int(sys.argv[1])

def works():
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass

def waits():
    burst.wait()
    works()
    threading.Event().wait()

for _ in range(turns):
    threading.Thread(target=waits, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    burst.set()
    if line == "start\\n":
        thread = threading.Thread(target=works)
        thread.start()
        thread.join()
    works()
    time.sleep(0.2)
    print("done", flush=True)
"""
"""The first thread and so many others work when they are told to."""

PROGRAM = """
import os, sys, threading
ready = threading.Barrier(3)
own = threading.Event()

def chosen():
    os.sched_setaffinity(threading.get_native_id(), {max(os.sched_getaffinity(0))})
    ready.wait()
    own.wait()

def waits():
    ready.wait()
    own.wait()

for work in (chosen, waits):
    threading.Thread(target=work, daemon=True).start()
ready.wait()
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=own.wait, daemon=True).start()
print("started", flush=True)
sys.stdin.readline()
"""

CORES = os.sched_getaffinity(0)

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="one core")


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """Three threads, of which one chose its core."""
    command = [sys.executable, "-c", PROGRAM]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and "ready\n" == process.stdout.readline()
        yield process
        process.kill()


def allowed(program: subprocess.Popen[str]) -> list[set[int]]:
    threads = sorted(int(task.name) for task in Path(f"/proc/{program.pid}/task").iterdir())
    return [os.sched_getaffinity(thread) for thread in threads]


def test_threads_may_use_their_cores_again_when_they_are_let_loose(
    program: subprocess.Popen[str],
) -> None:
    chosen = {max(CORES)}
    assert [CORES, chosen, CORES] == allowed(program)

    placed = Placed(program.pid)
    for thread in placed.allowed:
        os.sched_setaffinity(thread, {min(CORES)})
    placed.loosen()

    assert [CORES, chosen, CORES] == allowed(program)


def test_a_thread_that_was_started_meanwhile_is_let_loose_too(
    program: subprocess.Popen[str],
) -> None:
    assert program.stdin is not None and program.stdout is not None
    placed = Placed(program.pid)
    os.sched_setaffinity(program.pid, {min(CORES)})
    program.stdin.write("\n")
    program.stdin.flush()
    assert "started\n" == program.stdout.readline()
    assert 1 == len(allowed(program)[-1]), "it began where its starter was kept"

    placed.loosen()
    assert CORES == allowed(program)[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("others", "told", "kept"),
    [(0, "work", 1), (1, "work", 2), (len(CORES), "work", 0), (1, "start", 0)],
)
def test_those_that_worked_are_kept_where_each_has_a_core_and_none_was_started_for_it(
    others: int, told: str, kept: int
) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", WORKING, str(others)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        placed = Placed(process.pid)
        process.stdin.write(f"{told}\n")
        process.stdin.flush()
        assert "done\n" == process.stdout.readline()

        placed.settle()
        held = [cores for cores in allowed(process) if len(cores) == 1]
        placed.loosen()

        assert kept == len(held) == len(set(map(min, held)))
        assert {frozenset(CORES)} == set(map(frozenset, allowed(process)))
        process.kill()


def test_a_process_that_is_gone_is_nobodys_fault(program: subprocess.Popen[str]) -> None:
    placed = Placed(program.pid)
    program.kill()
    program.wait()

    placed.settle()
    placed.loosen()
    assert {} == Placed(program.pid).allowed
