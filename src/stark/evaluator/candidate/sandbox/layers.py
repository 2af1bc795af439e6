"""The sandbox's layers, and a test of which of them this machine offers.

If an offered layer later fails, the judge is at fault. Layers that the machine lacks are reported.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, get_args

from stark.evaluator.candidate.sandbox import kernel, landlock, namespaces, seccomp

Layer = Literal[
    "limits",
    "capabilities",
    "network",
    "processes",
    "proc",
    "tasks",
    "mounts",
    "landlock",
    "seccomp",
]

LAYERS: tuple[Layer, ...] = get_args(Layer)

WITHOUT = "STARK_SANDBOX_WITHOUT"
"""Environment variable that names the layers to leave out because they cause trouble, separated by commas."""

COUNTED_PER_NAMESPACE_SINCE = (5, 14)
"""From this version of Linux on, RLIMIT_NPROC counts a user's processes separately in each user namespace."""

_NEEDS: dict[Layer, Layer] = {"processes": "network", "proc": "processes", "mounts": "network"}
"""The layer that a layer requires, because namespaces are nested."""


def offered() -> dict[Layer, str | None]:
    """Maps every layer to None if it works on this machine, or to the reason why it does not.

    Tries each layer in a forked process. All tries together take a few milliseconds. Raises
    ValueError if `STARK_SANDBOX_WITHOUT` is invalid.
    """
    without = left_out()
    found: dict[Layer, str | None] = {}
    for layer in LAYERS:
        if layer in without:
            found[layer] = f"left out by {WITHOUT}"
        elif layer in _NEEDS and found[_NEEDS[layer]] is not None:
            found[layer] = f"needs the layer {_NEEDS[layer]}"
        elif layer == "tasks":
            found[layer] = _why_tasks_are_unlimited(found)
        else:
            found[layer] = _tried(_TRIES[layer]) if layer in _TRIES else None
    return found


def left_out() -> set[Layer]:
    """The layers that `STARK_SANDBOX_WITHOUT` names. Raises ValueError for an unknown name."""
    names = {name.strip() for name in os.environ.get(WITHOUT, "").split(",")} - {""}
    if unknown := ", ".join(sorted(names - set(LAYERS))):
        known = ", ".join(LAYERS)
        raise ValueError(f"{WITHOUT} names unknown layers: {unknown}; choose from {known}")
    return {layer for layer in LAYERS if layer in names}


def in_use(offered: Mapping[Layer, str | None]) -> frozenset[Layer]:
    """The offered layers, all of which are applied to a child."""
    return frozenset(layer for layer, why_not in offered.items() if why_not is None)


def gaps(active: Collection[str]) -> list[str]:
    """What model-written code can still do inside these layers, as phrases that follow `can`. One may imply another."""
    gaps = {
        "reach the network": {"network", "seccomp"},
        "modify any file that you can modify": {"mounts", "landlock"},
        "change the modes and times of your files": {"mounts"},
        "read your files and those that other candidates left": {"landlock"},
        "stop other processes": {"processes", "seccomp"},
    }
    return [gap for gap, closed_by in gaps.items() if not closed_by & set(active)]


def tasks_limited_by_namespace(active: frozenset[Layer]) -> bool:
    """Whether the process namespace limits the number of processes, instead of RLIMIT_NPROC."""
    return {"tasks", "proc"} <= active and kernel.release() >= namespaces.PID_LIMIT_SINCE


def _why_tasks_are_unlimited(found: Mapping[Layer, str | None]) -> str | None:
    release = kernel.release()
    if found["proc"] is None and release >= namespaces.PID_LIMIT_SINCE:
        return None
    if os.getuid() == 0:  # Linux does not apply RLIMIT_NPROC to root
        return "as root, needs the layer proc and Linux 6.14 or later"
    counted = found["network"] is None and release >= COUNTED_PER_NAMESPACE_SINCE
    return None if counted else "needs the layer network and Linux 5.14 or later"


def _processes() -> None:
    namespaces.enter(processes=True)
    namespaces.fork_under_reaper()


def _proc() -> None:
    _processes()
    namespaces.mount_own_proc()


def _mounts() -> None:
    folder = tempfile.gettempdir()
    namespaces.enter(processes=False)
    namespaces.make_read_only([Path(folder)])
    tempfile.TemporaryFile(dir=folder).close()


def _landlock() -> None:
    if landlock.version() < landlock.MIN_VERSION:
        raise OSError("Linux offers Landlock version 1, but version 2 (Linux 5.19) is needed")
    kernel.forbid_new_privileges()
    landlock.restrict([Path("/usr")], [])


def _seccomp() -> None:
    kernel.forbid_new_privileges()
    seccomp.restrict(sees_others=True, refuse_truncate=False)
    seccomp.restrict_further()


_TRIES: dict[Layer, Callable[[], None]] = {
    "network": lambda: namespaces.enter(processes=False),
    "processes": _processes,
    "proc": _proc,
    "mounts": _mounts,
    "landlock": _landlock,
    "seccomp": _seccomp,
}


def _tried(layer: Callable[[], None]) -> str | None:
    """Try a layer in a forked process. Returns None, or why it failed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            layer()
            code = 0
        except (OSError, RuntimeError) as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as answer:
        reason = answer.read()
    worked = os.waitpid(pid, 0)[1] == 0
    return None if worked else reason or "the test process ended without a result"
