"""The kernel languages that a candidate can be written in, by name.

To add one: a file and a guide (`.md`) beside this one, and its line in the registry.
"""

from __future__ import annotations

from stark.core.errors import UsageError
from stark.languages.base import DeviceKind, Language
from stark.languages.cpp import CPP
from stark.languages.cuda import CUDA
from stark.languages.triton import TRITON

LANGUAGES: dict[str, Language] = {entry.name: entry for entry in (CPP, TRITON, CUDA)}
"""In order of preference for each kind of device."""

__all__ = ["LANGUAGES", "Language", "best_for", "language"]


def language(name: str) -> Language:
    """The language of this name. Raises UsageError, which lists the known names."""
    if name not in LANGUAGES:
        raise UsageError(f"there is no language {name!r}; choose one of {', '.join(LANGUAGES)}")
    return LANGUAGES[name]


def best_for(device_kind: DeviceKind, here: bool = True) -> Language:
    """The first language for this kind of device whose tools this machine has, or else the last.

    For a device on another machine, whose tools are unknown, it is the first.
    """
    fitting = [entry for entry in LANGUAGES.values() if device_kind in entry.device_kinds]
    if not here:
        return fitting[0]
    return next((entry for entry in fitting if entry.missing() is None), fitting[-1])
