"""Stops a tree of processes, and proves that nothing of it ran until it is let go on.

A signal alone promises nothing: a process can have a timer, a thread or another process continue it, and one that keeps
forking is found anew for ever. So every thread is seen standing, and the processor time that the kernel counted by
then must be the same when the tree goes on. Knows no program.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stark.evaluator.judge.processes.watch import use_of_tree

PATIENCE_S = 2.0
"""How long a tree may take to stand; a fraction of a millisecond, but for one that is in the middle of a long system call."""

SETTLING_S = 50e-6
"""A thread that is seen standing leaves its core a moment later, which counts as its time; two looks so far apart must agree."""

SLACK_NS = 50_000
"""What a process may use after that: a thread that lost its core in that moment has its last microseconds when its turn comes."""

STANDING = frozenset("TtZXx")
"""States of a thread, in the kernel's letters: stopped, or ended."""

_PROCESS_CLOCK = 2
"""Marks the kernel's clock of the processor time that all threads of a process have used, ended ones included."""


class Restless(Exception):
    """Something did not stop, or did not stay so."""


@dataclass(frozen=True)
class Standstill:
    """A tree that stands."""

    used_ns: dict[int, int | None]
    """The processor time of every process, None for one that has ended."""

    since: float
    """When it was told to, on the clock of `time.perf_counter`: the last time, if anything of it ran after the first."""


def stop(root: int, known: Collection[int] = ()) -> Standstill:
    """Stop a process and everything below it; `known` are told first, before anyone is looked for. Raises Restless."""
    _tell(known, signal.SIGSTOP)
    begin = since = time.perf_counter()
    first_ns = {pid: processor_ns(pid) for pid in known}
    told = set(first_ns)
    while True:
        found = use_of_tree(root).processes
        moving = {pid for pid in found if pid not in told or not _stands(pid)}
        if not moving:
            used_ns = {pid: processor_ns(pid) for pid in found}
            time.sleep(SETTLING_S)
            if used_ns == {pid: processor_ns(pid) for pid in found}:
                return Standstill(used_ns, begin if _stood(first_ns, used_ns) else since)
        if time.perf_counter() > begin + PATIENCE_S:
            raise Restless("it does not stop when it is told to")
        if moving:
            _tell(moving, signal.SIGSTOP)
            since = time.perf_counter()
            told |= moving
            time.sleep(SETTLING_S)  # to stop, a thread that sleeps needs a core, perhaps this one


def go_on(standstill: Standstill) -> None:
    """Let a tree run again. Raises Restless if some of it ran meanwhile."""
    if not _stood(standstill.used_ns, {pid: processor_ns(pid) for pid in standstill.used_ns}):
        raise Restless("it went on running after it had been stopped")
    _tell(standstill.used_ns, signal.SIGCONT)


def _stood(before_ns: dict[int, int | None], after_ns: dict[int, int | None]) -> bool:
    """Whether none of the processes has run from one look at them to another."""
    pairs = [(before_ns.get(pid, 0), used_ns) for pid, used_ns in after_ns.items()]
    return all(a is None or b is None or b <= a + SLACK_NS for a, b in pairs)


def _tell(processes: Iterable[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _stands(pid: int) -> bool:
    """Whether every thread stands still; true for a process that is gone."""
    with suppress(OSError):
        return all(_state(task) in STANDING for task in Path(f"/proc/{pid}/task").iterdir())
    return True


def _state(task: Path) -> str:
    with suppress(OSError):  # it ended meanwhile
        return (task / "stat").read_text(errors="replace").rpartition(") ")[2][0]
    return "X"


def processor_ns(pid: int) -> int | None:
    """The processor time of a process, with that of its threads that have ended; None for one that is gone."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return None
