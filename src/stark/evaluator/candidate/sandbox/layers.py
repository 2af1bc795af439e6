"""The sandbox's layers, and a test of which of them this machine offers.

If an offered layer later fails, the judge is at fault. Layers that the machine lacks are reported.
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
"""Environment variable that names the layers to leave out because they cause trouble, separated by commas."""

COUNTED_PER_NAMESPACE_SINCE = (5, 14)
"""From this version of Linux on, RLIMIT_NPROC counts a user's processes separately in each user namespace."""

_NEEDS: tuple[tuple[Layer, Layer], ...] = (
    ("processes", "network"),
    ("proc", "processes"),
    ("mounts", "network"),
)
"""Pairs of a layer and another layer that the first one requires, because namespaces are nested."""


def offered() -> dict[Layer, str | None]:
    """Maps every layer to None if it works on this machine, or to the reason why it does not.

    Tries each layer in a forked process. All tries together take a few milliseconds. Raises
    ValueError if `STARK_SANDBOX_WITHOUT` is invalid.
    """
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
            found[layer] = f"needs the layer {needed}"
    if "tasks" not in found:
        found["tasks"] = _why_tasks_are_unlimited(found)
    return {layer: found[layer] for layer in LAYERS}


def left_out() -> set[Layer]:
    """The layers that `STARK_SANDBOX_WITHOUT` names. Raises ValueError for an unknown name."""
    names = {name.strip() for name in os.environ.get(WITHOUT, "").split(",")} - {""}
    unknown = names - set(LAYERS)
    if unknown:
        raise ValueError(
            f"{WITHOUT} names unknown layers: {', '.join(sorted(unknown))}; "
            f"choose from {', '.join(LAYERS)}"
        )
    return {layer for layer in LAYERS if layer in names}


def in_use(offered: Mapping[Layer, str | None]) -> frozenset[Layer]:
    """The offered layers, all of which are applied to a child."""
    return frozenset(layer for layer, why_not in offered.items() if why_not is None)


def gaps(active: Collection[str]) -> list[str]:
    """What model-written code can still do inside these layers, as phrases that follow `can`."""
    found = []
    if not {"network", "seccomp"} & set(active):
        found.append("reach the network")
    if not {"mounts", "landlock"} & set(active):
        found.append("modify any file that you can modify")
    elif "mounts" not in active:
        found.append("change the modes and times of your files")
    if "landlock" not in active:
        found.append("read your files and those that other candidates left")
    if not {"processes", "seccomp"} & set(active):
        found.append("stop other processes")
    return found


def tasks_limited_by_namespace(active: frozenset[Layer]) -> bool:
    """Whether the process namespace limits the number of processes, instead of RLIMIT_NPROC."""
    return {"tasks", "proc"} <= active and kernel.release() >= namespaces.PID_LIMIT_SINCE


def _limited_per_user(active: set[Layer]) -> bool:
    """Whether RLIMIT_NPROC limits only the child's processes. False for root, to whom Linux does not apply it."""
    counted = kernel.release() >= COUNTED_PER_NAMESPACE_SINCE and os.getuid() != 0
    return counted and "network" in active


def _why_tasks_are_unlimited(found: dict[Layer, str | None]) -> str | None:
    active = {layer for layer, why_not in found.items() if why_not is None}
    by_namespace = "proc" in active and kernel.release() >= namespaces.PID_LIMIT_SINCE
    if by_namespace or _limited_per_user(active):
        return None
    if os.getuid() == 0:
        return "as root, needs the layer proc and Linux 6.14 or later"
    return "needs the layer network and Linux 5.14 or later"


def _network() -> None:
    namespaces.enter(processes=False)


def _processes() -> None:
    namespaces.enter(processes=True)
    namespaces.fork_under_reaper()


def _proc() -> None:
    _processes()
    namespaces.mount_own_proc()


def _mounts(folder: Path) -> None:
    namespaces.enter(processes=False)
    namespaces.make_read_only([folder])
    (folder / "written").touch()


def _landlock() -> None:
    if landlock.version() < landlock.MIN_VERSION:
        raise OSError("Linux offers Landlock version 1, but version 2 (Linux 5.19) is needed")
    kernel.forbid_new_privileges()
    landlock.restrict([Path("/usr")], [])


def _seccomp() -> None:
    kernel.forbid_new_privileges()
    seccomp.restrict("reachable", refuse_truncate=False)
    seccomp.restrict_further()


def _tried(layer: Callable[[], None]) -> str | None:
    """Try a layer in a forked process. Returns None, or why it failed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        result = "worked"
        try:
            layer()
        except (OSError, RuntimeError) as error:
            result = str(error)
        with suppress(OSError):
            os.write(writing, result.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        result = answer.read().decode()
    os.waitpid(pid, 0)
    if result == "worked":
        return None
    return result or "the test process ended without a result"
