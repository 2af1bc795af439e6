"""The sandbox's layers, and a test of which of them this machine offers.

If an offered layer later fails, the judge is at fault. Layers that the machine lacks are reported.
`python -m stark.evaluator.candidate.sandbox.layers` prints as JSON which it offers.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Collection, Mapping
from typing import Literal, get_args

from stark.evaluator.candidate import confine
from stark.evaluator.candidate.sandbox import kernel, namespaces

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

_NEEDS: dict[Layer, tuple[Layer, ...]] = {
    "processes": ("network",),
    "proc": ("processes", "network"),
    "mounts": ("network",),
}
"""The layers that a layer requires, because namespaces are nested."""


def offered() -> dict[Layer, str | None]:
    """Maps every layer to None if it works on this machine, or to the reason why it does not.

    Tries each layer in a forked process. All tries together take some milliseconds. Raises
    ValueError if `STARK_SANDBOX_WITHOUT` is invalid, and RuntimeError if no process can be confined.
    """
    without = left_out()
    found: dict[Layer, str | None] = {}
    for layer in LAYERS:
        if layer in without:
            found[layer] = f"left out by {WITHOUT}"
        elif lacks := [each for each in _NEEDS.get(layer, ()) if found[each] is not None]:
            found[layer] = f"needs the layer {lacks[0]}"
        elif layer == "tasks":
            found[layer] = _why_tasks_are_unlimited(found)
        else:
            found[layer] = _tried(frozenset({layer, *_NEEDS.get(layer, ())}))
            # Every machine has these two. If one fails, all would, and no candidate may run.
            if layer in ("limits", "capabilities") and found[layer] is not None:
                raise RuntimeError(f"no process can be confined here: {found[layer]}")
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


def _why_tasks_are_unlimited(found: Mapping[Layer, str | None]) -> str | None:
    release = kernel.release()
    if found["proc"] is None and release >= namespaces.PID_LIMIT_SINCE:
        return None
    if os.getuid() == 0:  # Linux does not apply RLIMIT_NPROC to root
        return "as root, needs the layer proc and Linux 6.14 or later"
    counted = found["network"] is None and release >= COUNTED_PER_NAMESPACE_SINCE
    return None if counted else "needs the layer network and Linux 5.14 or later"


def _tried(layers: frozenset[Layer]) -> str | None:
    """Confine a forked process by these layers. Returns None, or why that failed."""
    (reading, writing), parent = os.pipe(), os.getpid()
    place = confine.Place(tempfile.gettempdir(), dict(os.environ))
    pid = os.fork()
    if pid == 0:
        try:
            confine.enter(layers, place, writing, parent)
            confine.close(layers, place)
            confine.lock(layers)
            if "mounts" in layers:
                tempfile.TemporaryFile(dir=place.folder).close()
            os._exit(0)
        except (OSError, RuntimeError, ValueError) as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as answer:
        reason = answer.read()
    worked = os.waitpid(pid, 0)[1] == 0
    return None if worked else reason or "the test process ended without a result"


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(offered()) + "\n")
    except ValueError as error:  # the user's STARK_SANDBOX_WITHOUT is invalid
        sys.exit(str(error))
