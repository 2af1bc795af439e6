"""torch's global settings that change what a program computes or how fast.

A problem may set them when it is imported, constructed or called. They then hold for its reference and its
candidates, and for no other problem.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import torch

Flags = dict[str, Any]
"""The value of each setting by its name, as far as this version of torch has it."""

ATTRIBUTES = (
    # The precision of float32 arithmetic: first for everything, then for a backend, then for one of its operators.
    "fp32_precision",
    "cudnn.fp32_precision",
    "mkldnn.fp32_precision",
    "cuda.matmul.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_accumulation",
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.deterministic",
    "mkldnn.enabled",
)
"""Settings that are attributes below `torch.backends`."""


class _Function(NamedTuple):
    """A setting that is read and written by functions."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]


FUNCTIONS = {
    # Also sets some attributes, so it is written before them.
    "float32_matmul_precision": _Function(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    ),
    "default_dtype": _Function(torch.get_default_dtype, torch.set_default_dtype),
    "default_device": _Function(torch.get_default_device, torch.set_default_device),
    "deterministic": _Function(
        torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode
    ),
    "threads": _Function(torch.get_num_threads, torch.set_num_threads),
    **{
        f"{name}_attention": _Function(
            getattr(torch.backends.cuda, f"{name}_sdp_enabled"),
            getattr(torch.backends.cuda, f"enable_{name}_sdp"),
        )
        for name in ("flash", "mem_efficient", "math", "cudnn")
        if hasattr(torch.backends.cuda, f"enable_{name}_sdp")
    },
}


def current() -> Flags:
    """The settings of this process. Those that torch refuses to read, after mixed use of its interfaces, are left out."""
    found: Flags = {}
    for name, read in _readers().items():
        try:
            found[name] = read()
        except (AttributeError, RuntimeError):
            continue
    return found


def apply(flags: Flags) -> None:
    """Give the settings these values, as far as they differ. Raises whatever torch raises."""
    now = current()
    for name, function in FUNCTIONS.items():
        if name in flags and now.get(name) != flags[name]:
            function.write(flags[name])
    now = current()
    for name in ATTRIBUTES:
        if name in flags and now.get(name) != flags[name]:
            owner, _, attribute = name.rpartition(".")
            setattr(_below(owner), attribute, flags[name])


def _readers() -> dict[str, Callable[[], Any]]:
    attributes = {name: lambda name=name: _below(name) for name in ATTRIBUTES}
    return {name: function.read for name, function in FUNCTIONS.items()} | attributes


def _below(path: str) -> Any:
    return reduce(getattr, filter(None, path.split(".")), torch.backends)
