"""Values and code as texts that are the same in every process, to compare a live module with what was captured.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

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


def described(value: Any) -> str:
    """`repr` of numbers, texts and containers; names of functions and classes; digests of tensors and of long texts."""
    text = _described(value)
    return text if len(text) < LONGEST else f"{text[:40]}… {_digest(text)}"


def _described(value: Any) -> str:
    if isinstance(value, functools.partial):
        return f"partial({_described([value.func, *value.args])}, {_described(value.keywords)})"
    if isinstance(value, NAMED):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, torch.Tensor):
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"{value.dtype} {list(value.shape)} {_digest(content.tobytes())}"
    if type(value) in (list, tuple):
        inner = ", ".join(map(_described, value))
        comma = "," if len(value) == 1 else ""
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{comma})"
    if type(value) is dict:
        return f"{{{', '.join(f'{_described(k)}: {_described(v)}' for k, v in value.items())}}}"
    if type(value) in (set, frozenset):
        return f"{type(value).__name__}({sorted(map(_described, value))})"
    return repr(value)


def kind_of(module: nn.Module) -> str:
    """The class as `package.module:QualifiedName`."""
    return name_of(type(module))


def name_of(kind: type) -> str:
    """A class as `package.module:QualifiedName`."""
    return f"{kind.__module__}:{kind.__qualname__}"


def named(name: str) -> Any:
    """What `package.module:name` is now, None if there is nothing. Raises LookupError if the module is not imported."""
    home, _, path = name.partition(":")
    if home not in sys.modules:
        raise LookupError(f"{home} is not imported")
    value: Any = sys.modules[home]
    for part in path.split("."):
        value = getattr(value, "__dict__", {}).get(part)
    return value


def definition(name: str) -> str:
    """The digest of the source of what `named` finds, or its description. Raises LookupError."""
    return code(named(name))


def code(value: Any) -> str:
    """The digest of the source of a function or class; other values are described."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, functools.cached_property):
        value = value.func
    if callable(value) and not isinstance(value, functools.partial):
        return _source(inspect.unwrap(value))
    return described(value)


@functools.lru_cache(maxsize=4096)
def _source(function: Any) -> str:
    try:
        return _digest(inspect.getsource(function))
    except (OSError, TypeError):
        return "no source"


def _digest(content: str | bytes) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()[:16]
