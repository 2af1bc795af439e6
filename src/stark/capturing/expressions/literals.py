"""Writes plain values as Python expressions."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any

import torch

ATOMS = (bool, int, float, complex, str, bytes, type(None), type(...))
TORCH_ATOMS = (torch.dtype, torch.memory_format, torch.layout)


def is_plain(value: object) -> bool:
    """Whether `literal` can write this value: numbers, texts, None, dtypes, devices, and containers of these."""
    if type(value) in ATOMS or isinstance(value, (*TORCH_ATOMS, torch.device, torch.Size)):
        return True
    if type(value) is slice:
        return all(map(is_plain, (value.start, value.stop, value.step)))
    if type(value) in (tuple, list, set, frozenset):
        return all(map(is_plain, value))  # type: ignore[call-overload]
    return type(value) is dict and all(is_plain(k) and is_plain(v) for k, v in value.items())


def is_constant(value: object) -> bool:
    """Whether a value can be a constant argument: plain, or a member of an enum."""
    return is_plain(value) or isinstance(value, enum.Enum)


def literal(value: Any) -> str:
    """The expression of a plain value."""
    match value:
        case torch.device():
            return f"torch.device({str(value)!r})"
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case torch.Size():
            return literal(tuple(value))
        case slice():
            return f"slice({literal(value.start)}, {literal(value.stop)}, {literal(value.step)})"
        case set() if value:
            return f"{{{', '.join(sorted(map(literal, value)))}}}"
        case frozenset():
            return f"frozenset(({', '.join(sorted(map(literal, value)))}{',' if value else ''}))"
    return "..." if value is ... else nested(value, literal) or repr(value)


def nested(value: Any, write: Callable[[Any], str]) -> str | None:
    """The expression of a tuple, list or dict, whose entries `write` writes; None for subclasses and other values."""
    if type(value) is dict:
        return f"{{{', '.join(f'{write(k)}: {write(v)}' for k, v in value.items())}}}"
    if type(value) not in (tuple, list):
        return None
    parts = ", ".join(map(write, value))
    if type(value) is list:
        return f"[{parts}]"
    return f"({parts}{',' if len(value) == 1 else ''})"


def sizes(shape: torch.Size | tuple[int, ...]) -> str:
    """A shape as the arguments of functions such as `torch.randn`."""
    return ", ".join(map(str, shape)) or "()"


def short(dtype: torch.dtype) -> str:
    """A dtype as an argument after a comma; nothing for float32, torch's default."""
    return "" if dtype == torch.float32 else f", dtype={dtype}"
