"""Which errors say that memory did not suffice, a host's or a device's."""

from __future__ import annotations

import torch

_WORDS = (
    "can't allocate memory",
    "std::bad_alloc",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_shortage(error: BaseException) -> bool:
    """Whether it is one of these, by its type or its words."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return any(words in text for words in _WORDS)
