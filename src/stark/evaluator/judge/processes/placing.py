"""Pins the threads of a process to separate cores while it is timed, or lets torch use one here.

Linux may wake several threads on one core and leave them there for tens of milliseconds while
another core is idle. In virtual machines this is common, because an idle core looks like a core
that the host has taken away. A program with two threads that wait for each other at a barrier then
takes up to twenty times as long.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from stark.evaluator.judge.processes.standstill import processor_ns
from stark.evaluator.judge.processes.watch import read, threads_of

WORKING_SHARE = 0.1
"""A thread counts as working if it uses at least this share of the busiest thread's processor time."""


class Placed:
    """The threads of one process, and the cores that they may use."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.allowed: dict[int, set[int]] = {}
        """The cores that each thread could use before it was pinned; only one if the thread had pinned itself."""

        for thread in threads_of(pid):
            with suppress(OSError):  # it ended meanwhile
                self.allowed[int(thread)] = os.sched_getaffinity(int(thread))
        self._began_ns = _ran_ns(pid)

    def settle(self) -> None:
        """Pin the threads that have worked since, each to a core of its own.

        Pins none if there are too few cores, or if the program has started threads that worked and ended meanwhile. The
        program may start such threads again, and they would inherit the core of the thread that starts them.
        """
        (before_ns, ended_before_ns), (ran_ns, ended_ns) = self._began_ns, _ran_ns(self._pid)
        worked_ns = {thread: ran_ns.get(thread, 0) - ran for thread, ran in before_ns.items()}
        least_ns = WORKING_SHARE * max(worked_ns.values(), default=0)
        working = [thread for thread, worked in sorted(worked_ns.items()) if worked >= least_ns]
        cores = sorted(self.allowed.get(self._pid, ()))
        if len(working) > len(cores) or ended_ns - ended_before_ns > least_ns:
            return
        for core, thread in zip(cores, working, strict=False):
            with suppress(OSError):
                if core in self.allowed[thread]:
                    os.sched_setaffinity(thread, {core})

    def loosen(self) -> None:
        """Let all threads use their former cores, and unpin new threads, which inherited a pinned thread's core."""
        anywhere = set().union(*self.allowed.values())
        for thread in map(int, threads_of(self._pid)):
            with suppress(OSError):
                if thread in self.allowed:
                    os.sched_setaffinity(thread, self.allowed[thread])
                elif anywhere and len(os.sched_getaffinity(thread)) == 1:
                    os.sched_setaffinity(thread, anywhere)


def _ran_ns(pid: int) -> tuple[dict[int, int], int]:
    """Processor time of each running thread, if Linux reports it, and of all ended threads together."""
    ran: dict[int, int] = {}
    for thread in threads_of(pid):
        if fields := read(f"/proc/{pid}/task/{thread}/schedstat").split():
            ran[int(thread)] = int(fields[0])
    return ran, (processor_ns(pid) or 0) - sum(ran.values())


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread of the CPU meanwhile: threads wait for each other, and spin on cores of other programs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
