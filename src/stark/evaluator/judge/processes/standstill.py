"""Stops a process tree, and proves that none of its processes ran until the tree was continued.

Stop signals alone guarantee nothing: a timer, a thread or another process can continue a process,
and a process that keeps forking has new descendants before all of them are found. So every thread
must be seen stopped, and from that moment until the tree is continued, no process may use more than
`SLACK_NS` of processor time.
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
"""Seconds that a tree may take to stop. Stopping takes a fraction of a millisecond, except in the
middle of a long system call."""

SETTLING_S = 50e-6
"""Seconds between two readings of the processor time. The tree counts as stopped when both are the same.
One reading is not enough: Linux shows a thread as stopped a moment before it leaves its core."""

SLACK_NS = 50_000
"""Nanoseconds of processor time that a stopped process may still use: a thread that was preempted
while stopping uses its last microseconds when it is scheduled again."""

STOPPED_STATES = frozenset("TtZXx")
"""Linux's letters for the states of a thread that is stopped or has ended."""

_PROCESS_CLOCK = 2
"""Selects the clock that counts a process's processor time, including that of ended threads."""


class NotStopped(Exception):
    """A process did not stop, or did not stay stopped."""


@dataclass(frozen=True)
class Standstill:
    """A stopped process tree."""

    used_ns: dict[int, int | None]
    """The processor time of every process, None for one that has ended."""

    since: float
    """The time of the stop by `time.perf_counter`: when the judge sent the first stop signals or, if these did not
    stop every process, when it sent the last."""


def stop(root: int, known: Collection[int] = ()) -> Standstill:
    """Stop a process and all its descendants. Raises NotStopped.

    The `known` processes get the signal first, before others are searched for.
    """
    _signal(known, signal.SIGSTOP)
    begin = since = time.perf_counter()
    first_ns = {pid: processor_ns(pid) for pid in known}
    signalled = set(first_ns)
    while True:
        found = use_of_tree(root).processes
        moving = {pid for pid in found if pid not in signalled or not _is_stopped(pid)}
        if not moving:
            used_ns = {pid: processor_ns(pid) for pid in found}
            time.sleep(SETTLING_S)
            if used_ns == {pid: processor_ns(pid) for pid in found}:
                return Standstill(used_ns, begin if _unchanged(first_ns, used_ns) else since)
        if time.perf_counter() > begin + PATIENCE_S:
            raise NotStopped("it does not stop on SIGSTOP")
        if moving:
            _signal(moving, signal.SIGSTOP)
            since = time.perf_counter()
            signalled |= moving
            time.sleep(SETTLING_S)  # a sleeping thread needs a core to stop, perhaps this one


def continue_tree(standstill: Standstill) -> None:
    """Continue a stopped tree. Raises NotStopped if any of its processes ran meanwhile."""
    if not _unchanged(standstill.used_ns, {pid: processor_ns(pid) for pid in standstill.used_ns}):
        raise NotStopped("one of its processes ran after the judge had stopped it")
    _signal(standstill.used_ns, signal.SIGCONT)


def _unchanged(before_ns: dict[int, int | None], after_ns: dict[int, int | None]) -> bool:
    """Whether none of the processes ran between two readings of their processor time."""
    pairs = [(before_ns.get(pid, 0), used_ns) for pid, used_ns in after_ns.items()]
    return all(a is None or b is None or b <= a + SLACK_NS for a, b in pairs)


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    """Whether every thread is stopped; true for a process that is gone."""
    with suppress(OSError):
        return all(_state(task) in STOPPED_STATES for task in Path(f"/proc/{pid}/task").iterdir())
    return True


def _state(task: Path) -> str:
    with suppress(OSError):  # it ended meanwhile
        return (task / "stat").read_text(errors="replace").rpartition(") ")[2][0]
    return "X"


def processor_ns(pid: int) -> int | None:
    """The processor time of a process, including its ended threads; None if the process is gone."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return None
