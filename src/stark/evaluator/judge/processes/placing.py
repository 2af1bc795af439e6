"""Keeps the threads of a process on cores of their own while it is timed.

Threads that wake at once may be put on one core by the kernel and stay there side by side for tens of milliseconds while another core is
idle; in virtual machines, where an idle core looks like one that was taken away, that is the rule. A program of two threads that meet at
a barrier then takes up to twenty times as long.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stark.evaluator.judge.processes.standstill import processor_ns

WORKS = 0.1
"""Share of what the busiest thread ran from which another one works, too."""


@dataclass
class Placed:
    """Threads of one process, each of which is kept on one core."""

    pid: int
    allowed: dict[int, set[int]] = field(default_factory=dict)
    """On which cores each of them may run otherwise: one that chose its own has no other."""

    ran_ns: dict[int, int] = field(default_factory=dict)
    """How long each of them had run by then."""

    ended_ns: int = 0
    """How long threads had run by then that have ended."""


def spread(pid: int) -> Placed:
    """Keep each thread of a process on one of its cores, in turn."""
    placed = Placed(pid)
    for number, thread in enumerate(_threads(pid)):
        with suppress(OSError):  # it ended meanwhile
            cores = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, {sorted(cores)[number % len(cores)]})
            placed.allowed[thread] = cores
    placed.ran_ns, placed.ended_ns = _ran_ns(pid)
    return placed


def settle(placed: Placed) -> None:
    """Keep only those that worked since, if there is a core for each, and let the others run anywhere.

    Nobody is kept where threads were started that have ended: the next ones would take over where their starter is kept.
    """
    ran_ns, ended_ns = _ran_ns(placed.pid)
    worked_ns = {thread: ran_ns.get(thread, 0) - before for thread, before in placed.ran_ns.items()}
    least_ns = WORKS * max(worked_ns.values(), default=0)
    working = [thread for thread, worked in sorted(worked_ns.items()) if worked >= least_ns]
    cores = sorted(placed.allowed.get(placed.pid, ()))
    loosen(placed)
    if len(working) > len(cores) or ended_ns - placed.ended_ns > least_ns:
        return
    for core, thread in zip(cores, working, strict=False):
        with suppress(OSError):
            if core in placed.allowed[thread]:
                os.sched_setaffinity(thread, {core})


def loosen(placed: Placed) -> None:
    """Let all run wherever they might before, and those that they started meanwhile too, which took over their starter's core."""
    anywhere = set().union(*placed.allowed.values())
    for thread in _threads(placed.pid):
        with suppress(OSError):
            if thread in placed.allowed:
                os.sched_setaffinity(thread, placed.allowed[thread])
            elif anywhere and len(os.sched_getaffinity(thread)) == 1:
                os.sched_setaffinity(thread, anywhere)


def _threads(pid: int) -> Iterator[int]:
    with suppress(OSError):
        yield from sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())


def _ran_ns(pid: int) -> tuple[dict[int, int], int]:
    """How long each thread has run so far, and all those that have ended; nothing where the kernel does not say."""
    ran: dict[int, int] = {}
    for thread in _threads(pid):
        with suppress(OSError, ValueError, IndexError):
            told = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text()
            ran[thread] = int(told.split()[0])
    return ran, (processor_ns(pid) or 0) - sum(ran.values())
