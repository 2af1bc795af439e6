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

from stark.evaluator.judge.processes.watch import parent_of, state_of, threads_of, use_of_tree

PATIENCE_S = 2.0
"""Seconds that a tree may take to stop. Stopping takes a fraction of a millisecond, except in the
middle of a long system call."""

SETTLING_S = 20e-6
"""Seconds between two looks at the threads' states. A thread that sleeps needs a core to stop, perhaps the judge's."""

SLACK_NS = 50_000
"""Nanoseconds of processor time that a stopped tree may still use. Linux shows a thread as stopped a moment before
it leaves its core, and a thread that was preempted while stopping uses its last microseconds later."""

STOPPED_STATES = frozenset("TtZXx")
"""Linux's letters for the states of a thread that is stopped or has ended."""

_PROCESS_CLOCK = 2
"""Selects the clock that counts a process's processor time, including that of ended threads."""


Used = dict[int, int | None]
"""The processor time of processes in nanoseconds, None for one that has ended."""


class NotStopped(Exception):
    """A process did not stop, or did not stay stopped."""


class Tree:
    """A process and its descendants. They are signalled by handles, which never name another process."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._handles: dict[int, int] = {}
        """By the id of a process, a file descriptor that stands for it."""

        self.used_ns: Used = {}
        """The processor time of every process when all were stopped; empty while they may run."""

    def stop(self) -> float:
        """Stop all, first those that were stopped before. Returns a `time.perf_counter()` when all had stopped. Raises NotStopped."""
        deadline = time.perf_counter() + PATIENCE_S
        self._meet({self._root})
        self._signal(signal.SIGSTOP)
        while time.perf_counter() < deadline:
            if not all(map(_is_stopped, self._handles)):
                time.sleep(SETTLING_S)
                self._signal(signal.SIGSTOP)  # something may have continued it
                continue
            since = time.perf_counter()
            before_ns = _used_ns(self._handles)
            found = use_of_tree(self._root).processes
            if not self._meet(found) and all(map(_is_stopped, found)):
                used_ns = _used_ns(found)
                if _unchanged(before_ns, used_ns) and self._is_whole(used_ns):
                    self.used_ns = used_ns
                    return since
            self._signal(signal.SIGSTOP)
        raise NotStopped("it does not stop on SIGSTOP")

    def stood(self) -> bool:
        """Whether the processes have stood still since they were stopped, and are still all that there are."""
        return _unchanged(self.used_ns, _used_ns(self.used_ns)) and self._is_whole(self.used_ns)

    def go_on(self) -> None:
        """Continue all processes if they are stopped."""
        if self.used_ns:
            self._signal(signal.SIGCONT)
        self.used_ns = {}

    def close(self) -> None:
        """Close all handles."""
        while self._handles:
            os.close(self._handles.popitem()[1])

    def _is_whole(self, known: Collection[int]) -> bool:
        """Whether the tree still has exactly these processes. A chain of short-lived ones has others at every look."""
        return set(use_of_tree(self._root).processes) == set(known)

    def _meet(self, found: Collection[int]) -> bool:
        """Open handles for these processes, except those that have ended, and may have left their numbers to others.

        Returns whether any is new, or has ended since it was found: something that runs may have started another one.
        """
        moved, known = False, {*self._handles, *found}
        for pid in set(found) - self._handles.keys():
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                moved = moved or pid != self._root  # the root is listed even if it is gone
                continue
            if pid == self._root or parent_of(pid) in known:
                self._handles[pid] = handle
                moved = True
            else:
                os.close(handle)
        return moved

    def _signal(self, number: signal.Signals) -> None:
        for pid, handle in list(self._handles.items()):
            try:
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                os.close(self._handles.pop(pid))


def _used_ns(processes: Iterable[int]) -> Used:
    return {pid: processor_ns(pid) for pid in processes}


def _unchanged(before_ns: Used, after_ns: Used) -> bool:
    """Whether all processes together used at most `SLACK_NS` between two readings of their processor time."""
    pairs = [(before_ns.get(pid, 0), used_ns) for pid, used_ns in after_ns.items()]
    return sum(b - a for a, b in pairs if a is not None and b is not None) <= SLACK_NS


def _is_stopped(pid: int) -> bool:
    """Whether every thread is stopped; true for a process that is gone."""
    tasks = f"/proc/{pid}/task"
    return all(state_of(f"{tasks}/{thread}") in STOPPED_STATES for thread in threads_of(pid))


def processor_ns(pid: int) -> int | None:
    """The processor time of a process, including its ended threads; None if the process is gone."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return None
