"""The kernel languages that a candidate can be written in, by name.

To add a language, add a Python file and a guide (`.md`) to this folder, and list the language in `LANGUAGES`.
"""

from __future__ import annotations

from stark.core.errors import UsageError
from stark.core.reference import Reference
from stark.languages.base import DeviceKind, Language
from stark.languages.cpp import CPP
from stark.languages.cuda import CUDA
from stark.languages.cutedsl import CUTEDSL
from stark.languages.gluon import GLUON
from stark.languages.pytorch import PYTORCH
from stark.languages.triton import TRITON

LANGUAGES: dict[str, Language] = {
    entry.name: entry for entry in (CPP, TRITON, CUDA, GLUON, CUTEDSL, PYTORCH)
}
"""Languages for the same kind of device are in order of preference."""

AUTO = "auto"
"""The language of a run whose planner chooses one for each rewrite, among those of the judge's machine."""

__all__ = [
    "AUTO",
    "LANGUAGES",
    "Language",
    "best_for",
    "language",
    "offered",
    "preloaded",
    "ready_for",
]


def preloaded() -> tuple[str, ...]:
    """The modules that a process imports once before it forks candidates of all languages."""
    return tuple(dict.fromkeys(name for entry in LANGUAGES.values() for name in entry.preload))


def language(name: str) -> Language:
    """The language of this name. Raises UsageError with the known names if no language has this name."""
    if name not in LANGUAGES:
        raise UsageError(f"there is no language {name!r}; choose one of {', '.join(LANGUAGES)}")
    return LANGUAGES[name]


def best_for(device_kind: DeviceKind, here: bool = True) -> Language:
    """Chooses a language for a device of this kind; `here` says whether the device is in this machine.

    For a device in this machine, the choice is the first language, in order of preference, whose tools are all
    installed. PyTorch alone is never chosen: where a language with kernels lacks its tools, the user should hear of it.
    If no language has all its tools here, or for a device in another machine, whose tools are unknown, the choice is
    the first language.
    """
    fitting = [
        entry
        for entry in LANGUAGES.values()
        if device_kind in entry.device_kinds and entry is not PYTORCH
    ]
    ready = (entry for entry in fitting if here and entry.missing() is None)
    return next(ready, fitting[0])


def ready_for(device_kind: DeviceKind) -> tuple[str, ...]:
    """The languages with kernels for this kind of device whose tools are installed on this machine."""
    return tuple(
        name
        for name, entry in LANGUAGES.items()
        if entry is not PYTORCH and device_kind in entry.device_kinds and entry.missing() is None
    )


def offered(reference: Reference) -> tuple[Language, ...]:
    """The languages that the judge's machine has and that fit its device, in order of preference."""
    ready = reference.versions.get("languages", "").split(", ")
    return tuple(
        entry for name, entry in LANGUAGES.items() if name in ready and entry.fits(reference.device)
    )
