"""Confines a child before it runs a candidate, in three steps.

`prepare` creates its namespaces. It takes longest, so it runs before there is a request. `enter`
moves the child to its folder, environment and resource limits, which the request names. `lock`
restricts files, system calls and privileges. It comes last, when nothing else must be opened: on a
device that is after the judge's memory has been mapped.

A tool that runs a program (`become`) stays unlocked, and the program locks itself. The forkserver
finds out which layers the machine offers. An offered layer that fails here is the judge's fault.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from stark.evaluator.candidate.sandbox import bounds, kernel, landlock, namespaces, seccomp, view
from stark.evaluator.candidate.sandbox.layers import Layer, tasks_limited_by_namespace


@dataclass(frozen=True)
class Place:
    """Where a child works and what it may use."""

    folder: Path
    """Its writable folder, which is also its working directory, HOME and TMPDIR."""

    readable: tuple[Path, ...]
    """What it may read in addition to its folder and the system's files."""

    environment: dict[str, str]
    memory_bytes: int | None
    """Limit of address space beyond what is mapped now, or None for no limit."""

    cpu_s: int | None
    """Limit of processor time in seconds, or None for no limit."""

    writable: tuple[Path, ...] = ()
    """Further writable folders, for a tool that works inside the process."""


class Confinement:
    """The confinement of one child. Methods raise OSError or RuntimeError if a layer fails."""

    def __init__(self, layers: frozenset[Layer]) -> None:
        self.layers = layers
        self._place: Place | None = None
        self._locked = False

    @classmethod
    def entered(cls, layers: frozenset[Layer], place: Place) -> Confinement:
        """The confinement of a process that another one started after it had entered this place."""
        confinement = cls(layers)
        confinement._place = place
        return confinement

    def prepare(self, parent: int) -> None:
        """Create the namespaces, and make this process tree die with `parent`.

        With a process namespace, this returns in a new process: the first one of that namespace.
        """
        os.setsid()
        kernel.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        if "network" in self.layers:
            namespaces.enter(processes="processes" in self.layers)
        if "processes" in self.layers:
            namespaces.fork_under_reaper()
        if "proc" in self.layers:
            namespaces.mount_own_proc()
        if tasks_limited_by_namespace(self.layers):
            namespaces.limit_processes(bounds.max_processes())

    def enter(self, place: Place, output: int) -> None:
        """Move to the place, with its environment, and with `output` as stdout and stderr.

        Returns in a new process, whose parent stays behind to reap orphans.
        """
        namespaces.fork_under_reaper()
        os.environ.clear()
        os.environ.update(place.environment)
        tempfile.tempdir = None  # Python caches it, so this is still the forkserver's folder
        empty = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, empty), (1, output), (2, output)):
            os.dup2(source, target)
        os.chdir(place.folder)
        bounds.bound(place.memory_bytes, place.cpu_s)
        self._place = place

    def lock(self) -> None:
        """Apply the remaining layers, after which setup is impossible. Does nothing if repeated."""
        if self._locked:
            return
        place, layers = self._place, self.layers
        assert place is not None, "enter() comes before lock()"
        if "mounts" in layers:
            namespaces.make_read_only([place.folder, *place.writable, view.THREAD_NAMES])
            os.chdir(place.folder)
        if "tasks" in layers and not tasks_limited_by_namespace(layers):
            bounds.lower(resource.RLIMIT_NPROC, bounds.max_processes())
        kernel.forbid_new_privileges()
        if "capabilities" in layers:
            kernel.drop_capabilities()
        if "landlock" in layers:
            landlock.restrict(self._readable(place), self._writable(place))
        if "seccomp" in layers:
            truncates = "landlock" in layers and landlock.version() < landlock.KNOWS_TRUNCATE
            seccomp.restrict(self._outside_processes(), refuse_truncate=truncates)
        self._locked = True

    def become(self, command: list[str]) -> NoReturn:
        """Replace this process by a tool, whose program has to lock itself. Raises OSError."""
        if "network" in self.layers:
            # The program needs them to make its mounts read-only. It drops them afterwards.
            kernel.keep_capabilities()
        os.execvp(command[0], command)

    def _outside_processes(self) -> seccomp.OutsideProcesses:
        if "processes" in self.layers:
            return "unreachable"
        scoped = "landlock" in self.layers and landlock.version() >= landlock.SCOPES_SIGNALS
        return "unsignalled" if scoped else "reachable"

    def _readable(self, place: Place) -> Iterator[Path]:
        yield from place.readable
        yield from view.readable(place.environment, place.folder)

    def _writable(self, place: Place) -> Iterator[Path]:
        yield place.folder
        yield from place.writable
        yield view.THREAD_NAMES
        yield from view.devices()
        if "mounts" in self.layers:
            # Private to this child. The machine's /dev/shm would let candidates leave data there.
            yield namespaces.SHARED_MEMORY
