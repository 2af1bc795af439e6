"""What a child does to itself before it touches a candidate, in three steps.

`prepare` makes namespaces of its own, ahead of any request since it takes longest. `enter` takes the place that a
request names: folder, environment, bounds. `lock` comes when nothing of ours is left to open, which on a device
is after the judge's memory was mapped: files, system calls and rights. A tool that runs a program (`become`) stays unlocked
itself; the program locks itself up. Which layers there are is the forkserver's to know; one that fails here is a fault of ours.
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
from stark.evaluator.candidate.sandbox.layers import Layer, tasks_bounded_by_namespace


@dataclass(frozen=True)
class Place:
    """Where a child works and what it may use."""

    folder: Path
    """Its own, which it may write to: its working folder, HOME and TMPDIR."""

    readable: tuple[Path, ...]
    """What it may read beside that and the system's own files."""

    environment: dict[str, str]
    memory_bytes: int | None
    """Of address space, beyond what is mapped now; None for no bound."""

    cpu_s: int | None

    writable: tuple[Path, ...] = ()
    """Folders that it may write to beside its own: those of a tool that works within its process."""


class Confinement:
    """One child on its way into its place. Methods raise OSError or RuntimeError where a layer fails."""

    def __init__(self, layers: frozenset[Layer]) -> None:
        self.layers = layers
        self._place: Place | None = None
        self._locked = False

    @classmethod
    def entered(cls, layers: frozenset[Layer], place: Place) -> Confinement:
        """That of a process that another one started, after it had taken this place."""
        confinement = cls(layers)
        confinement._place = place
        return confinement

    def prepare(self, parent: int) -> None:
        """Become something that can be killed whole and ends with `parent`.

        Returns in another process than it began where there is a process namespace: in its first.
        """
        os.setsid()
        kernel.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        if "network" in self.layers:
            namespaces.enter(processes="processes" in self.layers)
        if "processes" in self.layers:
            namespaces.leave_a_keeper()
        if "proc" in self.layers:
            namespaces.mount_own_proc()
        if tasks_bounded_by_namespace(self.layers):
            namespaces.limit_processes(bounds.most_processes())

    def enter(self, place: Place, output: int) -> None:
        """Take the place, without a secret, in a process whose keeper stays behind; `output` becomes stdout and stderr."""
        namespaces.leave_a_keeper()
        os.environ.clear()
        os.environ.update(place.environment)
        tempfile.tempdir = None  # found out once per process, so the forkserver's until now
        empty = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, empty), (1, output), (2, output)):
            os.dup2(source, target)
        os.chdir(place.folder)
        bounds.bound(place.memory_bytes, place.cpu_s)
        self._place = place

    def lock(self) -> None:
        """Give up what only the way here needed. After this a program may run; a second call does nothing."""
        if self._locked:
            return
        place, layers = self._place, self.layers
        assert place is not None, "a child locks itself in the place that it entered"
        if "mounts" in layers:
            namespaces.see_read_only([place.folder, *place.writable, view.THREAD_NAMES])
            os.chdir(place.folder)
        if "tasks" in layers and not tasks_bounded_by_namespace(layers):
            bounds.lower(resource.RLIMIT_NPROC, bounds.most_processes())
        kernel.forbid_new_privileges()
        if "capabilities" in layers:
            kernel.drop_capabilities()
        if "landlock" in layers:
            landlock.restrict(self._readable(place), self._writable(place))
        if "seccomp" in layers:
            truncates = "landlock" in layers and landlock.version() < landlock.KNOWS_TRUNCATE
            seccomp.restrict(self._strangers(), refuse_truncate=truncates)
        self._locked = True

    def become(self, command: list[str]) -> NoReturn:
        """Start a tool in this process, which is to run a program that locks itself up. Raises OSError."""
        if "network" in self.layers:
            kernel.keep_capabilities()  # the program takes them to see the machine read-only, then gives them up
        os.execvp(command[0], command)

    def _strangers(self) -> seccomp.Strangers:
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
            yield namespaces.SHARED_MEMORY  # its own; the machine's would carry things to the next
