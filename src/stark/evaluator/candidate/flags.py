"""torch's global settings that change what a program computes or how fast.

A problem may set them when it is imported, constructed or called. They then hold for its reference and its
candidates, and for no other problem.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Any

import torch

Flags = dict[str, Any]
"""The value of each setting by its name, as far as this version of torch has it."""


Setting = tuple[Callable[[], Any], Callable[[Any], Any]]
"""The functions that read and write it."""


def _attribute(path: str) -> Setting:
    """A setting that is an attribute below `torch.backends`, which older versions may lack."""
    owner, _, name = f"backends.{path}".rpartition(".")
    holder = attrgetter(owner)
    return lambda: getattr(holder(torch), name), lambda value: setattr(holder(torch), name, value)


SETTINGS: dict[str, Setting] = {
    # Also sets some of those below, so it is written before them.
    "float32_matmul_precision": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default_device": (torch.get_default_device, torch.set_default_device),
    "deterministic": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    **{
        f"{name}_attention": (
            getattr(torch.backends.cuda, f"{name}_sdp_enabled"),
            getattr(torch.backends.cuda, f"enable_{name}_sdp"),
        )
        for name in ("flash", "mem_efficient", "math", "cudnn")
        if hasattr(torch.backends.cuda, f"enable_{name}_sdp")
    },
    # The precision of float32 arithmetic: first for everything, then for a backend, then for one of its operators.
    **{
        path: _attribute(path)
        for path in (
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
    },
}
"""All settings, in the order in which they are written."""


def current() -> Flags:
    """The settings of this process. Those that torch refuses to read, after mixed use of its interfaces, are left out."""
    found = {name: _value(read) for name, (read, _) in SETTINGS.items()}
    return {name: value for name, value in found.items() if value is not None}


def apply(flags: Flags) -> None:
    """Give the settings these values, as far as they differ. Raises whatever torch raises."""
    for name, (read, write) in SETTINGS.items():
        if name in flags and _value(read) != flags[name]:
            write(flags[name])


def _value(read: Callable[[], Any]) -> Any:
    """What `read` returns, or None if the setting cannot be read."""
    with suppress(AttributeError, RuntimeError):
        return read()
    return None
