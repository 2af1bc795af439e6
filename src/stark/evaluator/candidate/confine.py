"""Confines a child before it runs a candidate, in four steps.

`prepare` creates the child's namespaces. `enter` applies the folder, environment and resource limits that the
request names. `close` restricts files, system calls and privileges. It comes before the child opens a device, while
the process has a single thread: most of these restrictions hold only for the thread that sets them and for threads
that it starts later, such as those of a GPU's driver. `lock` refuses, in all threads, the few calls that only opening
a device needs.

With `become`, a tool such as a profiler replaces the child. The tool stays open, and the Python
process that the tool starts closes and locks itself. The forkserver tests which layers of the sandbox the machine
offers. If an offered layer cannot be applied here, the judge is at fault, not the candidate.
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
    """The child's writable folder, also used as working directory, HOME and TMPDIR."""

    readable: tuple[Path, ...]
    """What the child may read in addition to its folder and the system's files."""

    environment: dict[str, str]
    memory_bytes: int | None
    """Maximum address space, in bytes, that the child may map after `enter`, or None for no limit."""

    cpu_s: int | None
    """Limit of processor time in seconds, or None for no limit."""

    writable: tuple[Path, ...] = ()
    """Further writable folders, for a tool whose library runs inside the process."""


class Confinement:
    """The confinement of one child. Methods raise OSError or RuntimeError if a layer fails."""

    def __init__(self, layers: frozenset[Layer], entered: Place | None = None) -> None:
        """`entered` is the place of a process that was started by one that had already entered it."""
        self.layers = layers
        self._place = entered
        self._closed = self._locked = False

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
        """Apply the place's folder, environment and limits, and make `output` stdout and stderr.

        Returns in a new process, whose parent stays behind to reap orphans.
        """
        namespaces.fork_under_reaper()
        os.environ.clear()
        os.environ.update(place.environment)
        tempfile.tempdir = None  # Python has cached the forkserver's folder
        empty = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, empty), (1, output), (2, output)):
            os.dup2(source, target)
        os.chdir(place.folder)
        bounds.bound(place.memory_bytes, place.cpu_s)
        self._place = place

    def close(self) -> None:
        """Apply all layers, except that a device can still be opened. Further calls do nothing."""
        if self._closed:
            return
        place, layers = self._place, self.layers
        assert place is not None, "enter() comes before close()"
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
            seccomp.restrict("processes" not in layers, refuse_truncate=truncates)
        self._closed = True

    def lock(self) -> None:
        """Close what is open, and refuse the calls that opening a device needs. Further calls do nothing."""
        self.close()
        if "seccomp" in self.layers and not self._locked:
            seccomp.restrict_further()
        self._locked = True

    def become(self, command: list[str]) -> NoReturn:
        """Replace this process by a tool. The process that the tool starts must close and lock itself. Raises OSError."""
        if "network" in self.layers:
            # The process under the tool needs capabilities to make mounts read-only, then drops them.
            kernel.keep_capabilities()
        os.execvp(command[0], command)

    def _readable(self, place: Place) -> Iterator[Path]:
        yield from place.readable
        yield from view.readable(place.environment, place.folder)

    def _writable(self, place: Place) -> Iterator[Path]:
        yield place.folder
        yield from place.writable
        yield view.THREAD_NAMES
        yield from view.devices(place.environment)
        if "mounts" in self.layers:
            # Private to this child. The machine's /dev/shm would let candidates leave data there.
            yield namespaces.SHARED_MEMORY
