"""Writes tensors with recorded strides: contiguous, expanded, overlapping, or any other."""

from __future__ import annotations

from collections.abc import Callable

import torch

from stark.capturing.values import span_of


def strided(value: torch.Tensor, contents: Callable[[torch.Tensor], str]) -> str:
    """An expression with the shape and strides of `value`; `contents` writes a contiguous tensor's values."""
    if value.is_contiguous():
        return contents(value)
    if (text := _expanded(value, contents)) is not None:
        return text
    shape, strides = tuple(value.shape), tuple(map(int, value.stride()))
    if torch._debug_has_internal_overlap(value) == 1 or span_of(value) < value.numel():
        # an element has several places, so that it cannot be written to
        made = f"torch.empty({span_of(value)}, dtype={value.dtype}).normal_()"
        return f"{made}.as_strided({shape}, {strides})"
    made = f"torch.empty_strided({shape}, {strides}, dtype={value.dtype})"
    return f"{made}.copy_({contents(value.contiguous())})"


def _expanded(value: torch.Tensor, contents: Callable[[torch.Tensor], str]) -> str | None:
    """One element along each dimension that is expanded; None if none is."""
    narrow = value
    for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
        if stride == 0 and size > 1:
            narrow = narrow.narrow(dim, 0, 1)
    if narrow is value:
        return None
    sizes = [-1 if n == m else n for n, m in zip(value.shape, narrow.shape, strict=True)]
    return f"({strided(narrow, contents)}).expand({', '.join(map(str, sizes))})"
