"""The layers of the sandbox: what each does, and which of them this machine offers, found by trying.

A layer that is offered and then fails is a fault of ours; one that is not offered is left out and said.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
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
"""Environment variable with layers to leave out, between commas: for a machine on which one does harm."""

COUNTED_PER_NAMESPACE_SINCE = (5, 14)
"""From this kernel on RLIMIT_NPROC counts within a user namespace; before, all that a user runs anywhere."""

NOT_ON_A_DEVICE: frozenset[Layer] = frozenset({"processes", "proc"})
"""CUDA opens another process's memory only within one process namespace."""

_NEEDS: tuple[tuple[Layer, Layer], ...] = (
    ("processes", "network"),
    ("proc", "processes"),
    ("mounts", "network"),
)
"""Namespaces lie within each other."""


def offered() -> dict[Layer, str | None]:
    """Every layer with None if it works here, or with why it does not. Forks; takes some milliseconds."""
    with tempfile.TemporaryDirectory(prefix="stark-") as folder:
        found: dict[Layer, str | None] = {
            "limits": None,
            "capabilities": None,
            "network": _tried(_network),
            "processes": _tried(_processes),
            "proc": _tried(_proc),
            "mounts": _tried(lambda: _mounts(Path(folder))),
            "landlock": _tried(_landlock),
            "seccomp": _tried(_seccomp),
        }
    found |= dict.fromkeys(left_out(), f"left out by {WITHOUT}")
    for layer, needed in _NEEDS:
        if found[layer] is None and found[needed] is not None:
            found[layer] = f"needs {needed}"
    if "tasks" not in found:
        found["tasks"] = _why_tasks_are_unbounded(found)
    return {layer: found[layer] for layer in LAYERS}


def left_out() -> set[Layer]:
    """What `STARK_SANDBOX_WITHOUT` names. Raises ValueError for a name that is no layer."""
    names = {name.strip() for name in os.environ.get(WITHOUT, "").split(",")} - {""}
    unknown = names - set(LAYERS)
    if unknown:
        raise ValueError(
            f"{WITHOUT} names {', '.join(sorted(unknown))}; the layers are {', '.join(LAYERS)}"
        )
    return {layer for layer in LAYERS if layer in names}


def in_use(offered: Mapping[Layer, str | None], on_device: bool) -> frozenset[Layer]:
    """The layers of one child."""
    active = {layer for layer, why_not in offered.items() if why_not is None}
    if on_device:
        active -= NOT_ON_A_DEVICE
        if not _bounded_by_user(active):
            active.discard("tasks")
    return frozenset(active)


def gaps(active: Collection[str]) -> list[str]:
    """What model-written code can do that it should not, with these layers around it, as ends of a sentence."""
    found = []
    if not {"network", "seccomp"} & set(active):
        found.append("reach the network")
    if not {"mounts", "landlock"} & set(active):
        found.append("write wherever you can")
    elif "mounts" not in active:
        found.append("change modes and times of your files")
    if "landlock" not in active:
        found.append("read your files and what other candidates left")
    if not {"processes", "seccomp"} & set(active):
        found.append("stop other processes")
    return found


def tasks_bounded_by_namespace(active: frozenset[Layer]) -> bool:
    """Whether the process namespace bounds how many there are, rather than the user's limit."""
    return {"tasks", "proc"} <= active and kernel.release() >= namespaces.PID_LIMIT_SINCE


def _bounded_by_user(active: set[Layer]) -> bool:
    """The kernel never counts what the administrator runs."""
    counted = kernel.release() >= COUNTED_PER_NAMESPACE_SINCE and os.getuid() != 0
    return counted and "network" in active


def _why_tasks_are_unbounded(found: dict[Layer, str | None]) -> str | None:
    active = {layer for layer, why_not in found.items() if why_not is None}
    by_namespace = "proc" in active and kernel.release() >= namespaces.PID_LIMIT_SINCE
    if by_namespace or _bounded_by_user(active):
        return None
    if os.getuid() == 0:
        return "for the administrator it takes proc and Linux 6.14"
    return "needs network and Linux 5.14"


def _network() -> None:
    namespaces.enter(processes=False)


def _processes() -> None:
    namespaces.enter(processes=True)
    namespaces.leave_a_keeper()


def _proc() -> None:
    _processes()
    namespaces.mount_own_proc()


def _mounts(folder: Path) -> None:
    namespaces.enter(processes=False)
    namespaces.see_read_only([folder])
    (folder / "written").touch()


def _landlock() -> None:
    if landlock.version() < landlock.OLDEST:
        raise OSError("the kernel's Landlock is of its first version; Linux 5.19 has a later one")
    kernel.forbid_new_privileges()
    landlock.restrict([Path("/usr")], [])


def _seccomp() -> None:
    kernel.forbid_new_privileges()
    seccomp.restrict("reachable", refuse_truncate=False)


def _tried(layer: Callable[[], None]) -> str | None:
    """Do it in a process of its own; why it failed, or None."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        said = "worked"
        try:
            layer()
        except (OSError, RuntimeError) as error:
            said = str(error)
        with suppress(OSError):
            os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(pid, 0)
    if said == "worked":
        return None
    return said or "the attempt ended without a word"
