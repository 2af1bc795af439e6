"""Pins the threads of a process to separate cores while it is timed.

The kernel may wake several threads on one core and leave them there for tens of milliseconds while
another core is idle. In virtual machines this is common, because an idle core looks like one that
was taken away. A program whose two threads meet at a barrier then takes up to twenty times as long.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stark.evaluator.judge.processes.standstill import processor_ns

WORKING_SHARE = 0.1
"""A thread counts as working from this share of the busiest thread's processor time on."""


@dataclass
class Placed:
    """The pinned threads of one process."""

    pid: int
    allowed: dict[int, set[int]] = field(default_factory=dict)
    """The cores that each thread may use otherwise: only one for a thread that pinned itself."""

    ran_ns: dict[int, int] = field(default_factory=dict)
    """Processor time of each thread when it was pinned."""

    ended_ns: int = 0
    """Processor time of ended threads at that moment."""


def spread(pid: int) -> Placed:
    """Pin each thread of a process to one of the cores that it may use, in turn."""
    placed = Placed(pid)
    for number, thread in enumerate(_threads(pid)):
        with suppress(OSError):  # it ended meanwhile
            cores = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, {sorted(cores)[number % len(cores)]})
            placed.allowed[thread] = cores
    placed.ran_ns, placed.ended_ns = _ran_ns(pid)
    return placed


def settle(placed: Placed) -> None:
    """Keep pinned only the threads that have worked since `spread`, if there is a core for each.

    Unpins all threads if others were started and ended meanwhile, because further ones would
    inherit their creator's core.
    """
    ran_ns, ended_ns = _ran_ns(placed.pid)
    worked_ns = {thread: ran_ns.get(thread, 0) - before for thread, before in placed.ran_ns.items()}
    least_ns = WORKING_SHARE * max(worked_ns.values(), default=0)
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
    """Give all threads their former cores, also those that inherited their creator's core."""
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
    """Processor time of each thread and of all ended ones; empty if the kernel reports none."""
    ran: dict[int, int] = {}
    for thread in _threads(pid):
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text()
            ran[thread] = int(fields.split()[0])
    return ran, (processor_ns(pid) or 0) - sum(ran.values())
