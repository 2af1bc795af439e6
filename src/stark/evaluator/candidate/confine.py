"""What a child does to itself before it touches a candidate, in two steps.

`enter` comes first: a session, an environment and namespaces of its own. `lock` comes when nothing of ours is
left to open, which on a device is after the judge's memory was mapped: files, system calls and rights.
Which layers there are is the forkserver's to know; one that fails here is a fault of ours.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stark.evaluator.candidate.sandbox import bounds, kernel, landlock, namespaces, seccomp, view
from stark.evaluator.candidate.sandbox.layers import Layer, tasks_bounded_by_namespace


@dataclass(frozen=True)
class Place:
    """Where a child works and what it may use."""

    folder: Path
    """The only one that it may write to: its working folder, HOME and TMPDIR."""

    readable: tuple[Path, ...]
    """What it may read beside that and the system's own files."""

    environment: dict[str, str]
    memory_bytes: int | None
    """Of address space, beyond what is mapped now; None for no bound."""

    cpu_s: int | None
    layers: frozenset[Layer]


class Confinement:
    """One child on its way into its place. Methods raise OSError or RuntimeError where a layer fails."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._locked = False

    def enter(self, output: int, parent: int) -> None:
        """Become a child that can be killed whole and holds no secrets; returns in another process than it began.

        `output` becomes stdout and stderr; everything ends with `parent`.
        """
        os.setsid()
        kernel.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        os.environ.clear()
        os.environ.update(self.place.environment)
        empty = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, empty), (1, output), (2, output)):
            os.dup2(source, target)
        self._enter_namespaces()
        os.chdir(self.place.folder)
        bounds.bound(self.place.memory_bytes, self.place.cpu_s)

    def lock(self) -> None:
        """Give up what only the way here needed. After this a program may run; a second call does nothing."""
        if self._locked:
            return
        place, layers = self.place, self.place.layers
        if "mounts" in layers:
            namespaces.see_read_only([place.folder, view.THREAD_NAMES])
            os.chdir(place.folder)
        if "tasks" in layers and not tasks_bounded_by_namespace(layers):
            bounds.lower(resource.RLIMIT_NPROC, bounds.most_processes())
        kernel.forbid_new_privileges()
        if "capabilities" in layers:
            kernel.drop_capabilities()
        if "landlock" in layers:
            landlock.restrict(self._readable(), self._writable())
        if "seccomp" in layers:
            truncates = "landlock" in layers and landlock.version() < landlock.KNOWS_TRUNCATE
            seccomp.restrict(self._strangers(), refuse_truncate=truncates)
        self._locked = True

    def _enter_namespaces(self) -> None:
        """Two keepers around a process namespace, one where there is none."""
        layers = self.place.layers
        if "network" in layers:
            namespaces.enter(processes="processes" in layers)
        namespaces.leave_a_keeper()
        if "processes" not in layers:
            return
        if "proc" in layers:
            namespaces.mount_own_proc()
        if tasks_bounded_by_namespace(layers):
            namespaces.limit_processes(bounds.most_processes())
        namespaces.leave_a_keeper()

    def _readable(self) -> Iterator[Path]:
        yield from self.place.readable
        yield from view.readable(self.place.environment, self.place.folder)

    def _writable(self) -> Iterator[Path]:
        yield self.place.folder
        yield view.THREAD_NAMES
        yield from view.devices()
        if "mounts" in self.place.layers:
            yield namespaces.SHARED_MEMORY  # its own; the machine's would carry things to the next

    def _strangers(self) -> seccomp.Strangers:
        if "processes" in self.place.layers:
            return "unreachable"
        scoped = "landlock" in self.place.layers and landlock.version() >= landlock.SCOPES_SIGNALS
        return "unsignalled" if scoped else "reachable"
