"""Values and code as texts that are the same in every process, to compare a live module with what was captured.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import sys
import types
from typing import Any

import torch
from torch import nn

LONGEST = 500
"""Longer texts are replaced by their digests."""

NAMED = (types.FunctionType, types.BuiltinFunctionType, type)

MISSING = "<missing>"
"""Stands for an attribute that code asks for and that there is not."""


def described(value: Any) -> str:
    """`repr` of numbers, texts and containers; names of functions and classes; digests of tensors and of long texts."""
    text = _described(value)
    return text if len(text) < LONGEST else f"{text[:40]}… {_digest(text)}"


def hidden(value: Any) -> str:
    """The digest of a value's description, for what must not be readable in a file."""
    return f"digest {_digest(_described(value))}"


def matches(value: Any, expected: str) -> bool:
    """Whether a value is as `described` or `hidden` showed it."""
    return expected == (hidden(value) if expected.startswith("digest ") else described(value))


def _described(value: Any, around: tuple[Any, ...] = ()) -> str:
    """`around` are the functions whose closures the value is in."""

    def part(value: Any) -> str:
        return _described(value, around)

    if isinstance(value, functools.partial):
        return f"partial({part([value.func, *value.args])}, {part(value.keywords)})"
    if isinstance(value, types.MethodType):
        return f"method {part(value.__func__)}"
    if isinstance(value, types.FunctionType) and "<" in value.__qualname__ and value not in around:
        around = (*around, value)
        parts = [_instructions(value.__code__), [each for _, each in cells(value)]]
        inside = part([*parts, value.__defaults__, value.__kwdefaults__])
        return f"{value.__module__}.{value.__qualname__} {_digest(inside)}"
    if isinstance(value, NAMED):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, torch.Tensor):
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"{value.dtype} {list(value.shape)} {_digest(content.tobytes())}"
    if type(value) in (list, tuple):
        inner = ", ".join(map(part, value))
        comma = "," if len(value) == 1 else ""
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{comma})"
    if type(value) is dict:
        return f"{{{', '.join(f'{part(k)}: {part(v)}' for k, v in value.items())}}}"
    if isinstance(value, dict):
        return f"{type(value).__qualname__}({part(dict(value))})"
    if type(value) in (set, frozenset):
        return f"{type(value).__name__}({sorted(map(part, value))})"
    return repr(value)


def cells(function: types.FunctionType) -> list[tuple[str, Any]]:
    """The variables of a closure, without those that have no value yet."""
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found.append((name, cell.cell_contents))
    return found


def _instructions(function: types.CodeType) -> list[Any]:
    """What a function without a name of its own does: its source may be one of several in a line."""
    inner = [_instructions(c) if isinstance(c, types.CodeType) else c for c in function.co_consts]
    return [function.co_code.hex(), function.co_names, inner]


def kind_of(module: nn.Module) -> str:
    """The class as `package.module:QualifiedName`."""
    return name_of(type(module))


def name_of(kind: type) -> str:
    """A class as `package.module:QualifiedName`."""
    return f"{kind.__module__}:{kind.__qualname__}"


def found(name: str) -> Any:
    """The object `package.module:name`; None if there is none. Raises LookupError if the module is not imported."""
    home, _, path = name.partition(":")
    if home not in sys.modules:
        raise LookupError(f"{home} is not imported")
    value: Any = sys.modules[home]
    for part in path.split("."):
        value = getattr(value, "__dict__", {}).get(part)
    return value


def is_as(name: str, expected: str) -> bool:
    """Whether `package.module:name` is as `code` or `hidden` showed it. Raises LookupError."""
    value = found(name)
    return matches(value, expected) or expected == code(value)


def code(value: Any) -> str:
    """The digest of the source of a function or class; other values are described."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, functools.cached_property):
        value = value.func
    if callable(value) and not isinstance(value, functools.partial):
        function = inspect.unwrap(value)
        if isinstance(function, types.FunctionType) and "<" in function.__qualname__:
            return described(function)
        return _source(function) or described(value)
    return described(value)


@functools.lru_cache(maxsize=4096)
def _source(function: Any) -> str | None:
    try:
        return _digest(inspect.getsource(function))
    except (OSError, TypeError):
        return None


def _digest(content: str | bytes) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()[:16]
