"""Confines a child before it runs a candidate, in three steps.

`enter` creates the child's namespaces and applies the folder, environment and resource limits of its place. `close`
restricts files, system calls and privileges. It comes before the child opens a device, while
the process has a single thread: most of these restrictions hold only for the thread that sets them and for threads
that it starts later, such as those of a GPU's driver. `lock` refuses, in all threads, the few calls that only opening
a device needs.

With `become`, a tool such as a profiler replaces the child. The tool stays open, and the Python
process that the tool starts closes and locks itself. The forkserver tests which layers of the sandbox the machine
offers. If an offered layer cannot be applied here, the judge is at fault, not the candidate: all functions raise OSError
or RuntimeError then.
"""

from __future__ import annotations

import os
import resource
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stark.evaluator.candidate.sandbox import bounds, kernel, landlock, namespaces, seccomp, view

if TYPE_CHECKING:  # layers are tried by confining a process
    from stark.evaluator.candidate.sandbox.layers import Layer


@dataclass(frozen=True)
class Place:
    """Where a child works and what it may use. The forkserver gets this as JSON."""

    folder: str
    """The child's writable folder, also used as working directory, HOME and TMPDIR."""

    environment: dict[str, str]
    readable: tuple[str, ...] = ()
    """What the child may read in addition to its folder and the system's files."""

    writable: tuple[str, ...] = ()
    """Further writable folders, for a tool whose library runs inside the process."""

    memory_bytes: int | None = None
    """Maximum address space, in bytes, that the child may map after `enter`, or None for no limit, as GPU drivers need it."""

    cpu_s: int | None = None
    """Limit of each process's processor time in seconds, or None for no limit."""

    yields: bool = False
    """Whether its processes leave the cores to whatever else runs. Hostile ones can take this back."""


def enter(layers: frozenset[Layer], place: Place, output: int, parent: int) -> None:
    """Create the namespaces, apply the place's folder, environment and limits, and make `output` stdout and stderr.

    Returns in a new process. The processes between it and `parent` only reap orphans, and all of them end with `parent`.
    """
    os.setsid()
    kernel.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    if "network" in layers:
        namespaces.enter(processes="processes" in layers)
    if "processes" in layers:
        namespaces.fork_under_reaper()  # in the first process of that namespace
    if "proc" in layers:
        namespaces.mount_own_proc()
    if _tasks_limited_by_namespace(layers):
        namespaces.limit_processes(bounds.max_processes())
    namespaces.fork_under_reaper()
    os.environ.clear()
    os.environ.update(place.environment)
    tempfile.tempdir = None  # Python has cached the forkserver's folder
    empty = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, empty), (1, output), (2, output)):
        os.dup2(source, target)
    os.chdir(place.folder)
    bounds.bound(place.memory_bytes, place.cpu_s)
    if place.yields:
        bounds.yield_cores()


def close(layers: frozenset[Layer], place: Place) -> None:
    """Apply all layers, except that a device can still be opened."""
    own = [*map(Path, (place.folder, *place.writable)), view.THREAD_NAMES]
    if "mounts" in layers:
        namespaces.make_read_only(own)
        os.chdir(place.folder)
    if "tasks" in layers and not _tasks_limited_by_namespace(layers):
        bounds.lower(resource.RLIMIT_NPROC, bounds.max_processes())
    kernel.forbid_new_privileges()
    if "capabilities" in layers:
        kernel.drop_capabilities()
    if "landlock" in layers:
        # The machine's own /dev/shm would let candidates leave data there.
        private = [namespaces.SHARED_MEMORY] if "mounts" in layers else []
        landlock.restrict(
            [*map(Path, place.readable), *view.readable(place.environment, own[0])],
            [*own, *view.devices(place.environment), *private],
        )
    if "seccomp" in layers:
        truncates = "landlock" in layers and landlock.version() < landlock.KNOWS_TRUNCATE
        seccomp.restrict("processes" not in layers, refuse_truncate=truncates)


def lock(layers: frozenset[Layer]) -> None:
    """After `close`, refuse the calls that opening a device needs."""
    if "seccomp" in layers:
        seccomp.restrict_further()


def become(layers: frozenset[Layer], command: list[str]) -> NoReturn:
    """Replace this process by a tool. The process that the tool starts must close and lock itself."""
    if "network" in layers:
        # The process under the tool needs capabilities to make mounts read-only, then drops them.
        kernel.keep_capabilities()
    os.execvp(command[0], command)


def _tasks_limited_by_namespace(layers: frozenset[Layer]) -> bool:
    """Whether the process namespace limits the number of processes, instead of RLIMIT_NPROC."""
    return {"tasks", "proc"} <= layers and kernel.release() >= namespaces.PID_LIMIT_SINCE
