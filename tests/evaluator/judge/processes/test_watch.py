from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from stark.evaluator.judge.processes import watch
from stark.evaluator.judge.processes.watch import exact_memory_bytes, last_core, use_of_tree

HOLDS = """
import subprocess, sys
held = bytearray(b"x" * (40 << 20))
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:]]) if sys.argv[1] else None
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("listed", [True, False])
def test_a_tree_counts_whole(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system does not list the children of processes."""
    monkeypatch.setattr(watch, "CHILDREN", "children" if listed else "none")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, HOLDS, ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert ["ready\n", "ready\n"] == [process.stdout.readline() for _ in range(2)]

        used = use_of_tree(process.pid)

        assert 2 == used.tasks == len(used.processes)
        assert 80 << 20 < used.memory_bytes < 400 << 20
        assert 80 << 20 < exact_memory_bytes(used) <= used.memory_bytes
        assert process.stdin is not None
        process.stdin.close()


def test_memory_counts_when_the_first_thread_has_ended() -> None:
    leaves = (
        "import ctypes, sys, threading, time\n"
        "held = bytearray(b'x' * (40 << 20))\n"
        "def stay():\n"
        "    time.sleep(0.2)\n"
        "    print('alone', flush=True)\n"
        "    sys.stdin.read()\n"
        "threading.Thread(target=stay).start()\n"
        "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[sys.argv[1]], 0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", leaves, os.uname().machine],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "alone\n" == process.stdout.readline()

        used = use_of_tree(process.pid)

        assert 40 << 20 < used.memory_bytes < 200 << 20
        exact = exact_memory_bytes(used)  # read later, when the thread may have touched more pages
        assert 40 << 20 < exact < used.memory_bytes + (1 << 20)
        process.kill()


def test_threads_count() -> None:
    stop = threading.Event()
    before = use_of_tree(os.getpid()).tasks
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in threads:
        thread.start()

    assert before + 3 == use_of_tree(os.getpid()).tasks
    stop.set()
    for thread in threads:
        thread.join()


def test_a_process_that_is_gone_uses_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()

    assert (0, 0) == (use_of_tree(process.pid).memory_bytes, use_of_tree(process.pid).tasks)


def test_the_core_of_a_process_is_one_that_it_may_use() -> None:
    assert last_core(os.getpid()) in os.sched_getaffinity(0)
    assert last_core(1 << 30) is None
