"""What a profile on a CPU tells of a program's own compiled code, of which PyTorch's profiler sees nothing.

Its functions get names, and the scalar functions of the C library that it calls are listed. Extensions are found where programs keep them: in the globals of the program's file and in the attributes of its module.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.autograd import profiler

from stark.evaluator.candidate.trace import COMPILED

_recorded: Any = getattr(torch._C._profiler, "_RecordFunctionFast", profiler.record_function)
"""The fast way takes under a microsecond. It is private to PyTorch, so the public one stands in for it."""

MAX_BYTES = 16 << 20
"""Larger extensions are not searched, since it would take too long."""

_SCALAR = re.compile(
    rb"\0((?:exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|sinh|cosh|tanh|erf|erfc|atan|atan2|cbrt|tgamma|lgamma)f?)(?=\0)"
)
"""Names in an extension's table of symbols. The vector versions are called `_ZGVdN8v_expf`, for example."""


def scalar_calls(folder: Path, maps: Path = Path("/proc/self/maps")) -> list[str]:
    """The C library's functions of one number that loaded extensions below a folder call, in order of the alphabet.

    How often they are called is unknown. Empty if Linux does not say which files are loaded.
    """
    try:
        loaded = {Path(line.split()[-1]) for line in maps.read_text().splitlines() if ".so" in line}
        ours = [path for path in loaded if folder in path.parents]
        files = [path for path in ours if path.stat().st_size <= MAX_BYTES]
        return sorted(
            {name.decode() for path in files for name in _SCALAR.findall(path.read_bytes())}
        )
    except OSError:
        return []


@contextmanager
def named(*namespaces: dict[str, Any]) -> Iterator[None]:
    """Until this ends, extensions in the namespaces record the calls of their functions as profiler events."""
    found = [
        (namespace, name, value, watched)
        for namespace in namespaces
        for name, value in namespace.items()
        if (watched := _watched(name, value)) is not None
    ]
    for namespace, name, _, watched in found:
        namespace[name] = watched
    try:
        yield
    finally:
        for namespace, name, value, _ in found:
            namespace[name] = value


def _watched(name: str, value: object) -> object | None:
    """What records calls in place of an extension or one of its functions; None for anything else."""
    ffi = sys.modules.get("tvm_ffi")
    if ffi is not None and isinstance(value, ffi.Function):
        return _recording(name, value)
    of_torch = isinstance(value, ModuleType) and str(getattr(value, "__file__", "")).endswith(".so")
    if of_torch or (ffi is not None and isinstance(value, ffi.Module)):
        return _Extension(value)
    return None


class _Extension:
    """An extension whose functions record their calls."""

    def __init__(self, extension: object) -> None:
        self._extension = extension

    def __getattr__(self, name: str) -> object:
        value = getattr(self._extension, name)
        return _recording(name, value) if callable(value) else value


def _recording(name: str, function: Callable[..., object]) -> Callable[..., object]:
    def call(*args: Any, **kwargs: Any) -> object:
        with _recorded(COMPILED + name):
            return function(*args, **kwargs)

    return call
