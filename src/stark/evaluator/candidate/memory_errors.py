"""Recognizes errors that mean the host or the device ran out of memory."""

from __future__ import annotations

import torch

_WORDS = (
    "can't allocate memory",
    "std::bad_alloc",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error's type or text says that memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return any(words in text for words in _WORDS)
