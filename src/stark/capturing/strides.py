"""Writes tensors with recorded strides: contiguous, channels last, permuted, expanded, or with gaps."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch

from stark.capturing.values import span_of

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def strided(value: torch.Tensor, contents: Callable[[torch.Tensor], str]) -> str:
    """An expression with the shape and strides of `value`; `contents` writes a contiguous tensor's values."""
    if value.is_contiguous():
        return contents(value)
    for written in (_expanded, _channels_last, _permuted, _sliced):
        text = written(value, contents)
        if text is not None and _form(text) == (value.shape, value.stride()):
            return text
    shape, strides = tuple(value.shape), tuple(map(int, value.stride()))
    made = f"torch.empty_strided({shape}, {strides}, dtype={value.dtype})"
    if torch._debug_has_internal_overlap(value) == 1 or span_of(value) < value.numel():
        # an element has several places, so that it cannot be written to
        made = f"torch.empty({span_of(value)}, dtype={value.dtype}).normal_()"
        return f"{made}.as_strided({shape}, {strides})"
    return f"{made}.copy_({contents(value.contiguous())})"


def _form(text: str) -> tuple[torch.Size, tuple[int, ...]] | None:
    """The shape and strides of what an expression makes; None if only a device with data can tell."""
    try:
        with torch.device("meta"):
            made = eval(text, {"torch": torch, "unpacked": _unpacked})
    except (RuntimeError, NotImplementedError):
        return None
    return made.shape, made.stride()


def _unpacked(text: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of the form of a stored one."""
    return torch.empty(shape, dtype=dtype, device="meta")


def _channels_last(value: torch.Tensor, contents: Callable[[torch.Tensor], str]) -> str | None:
    """Channels last, in two or three dimensions."""
    known = CHANNELS_LAST.get(value.dim())
    if known is None or not value.is_contiguous(memory_format=known):
        return None
    return f"{_grouped(contents(value.contiguous()))}.to(memory_format={known})"


def _permuted(value: torch.Tensor, contents: Callable[[torch.Tensor], str]) -> str | None:
    """A contiguous tensor with dimensions in another order."""
    strides = value.stride()
    order = sorted(range(value.dim()), key=lambda i: (-strides[i], i))
    straight = value.permute(order)
    if not straight.is_contiguous():
        return None
    back = [order.index(i) for i in range(value.dim())]
    moved = [i for i, j in enumerate(back) if i != j]
    swapped = len(moved) == 2
    method = f"transpose({moved[0]}, {moved[1]})" if swapped else f"permute{tuple(back)}"
    return f"{_grouped(contents(straight))}.{method}"


def _sliced(value: torch.Tensor, contents: Callable[[torch.Tensor], str]) -> str | None:
    """The first entries of a larger contiguous tensor; None for other strides."""
    strides = [int(stride) for stride in value.stride()]
    if strides[-1] != 1 or 0 in strides:
        return None
    whole = [value.shape[0], *(a // b for a, b in pairwise(strides))]
    indices = [":" if n == m else f":{m}" for n, m in zip(whole, value.shape, strict=True)]
    while indices[-1] == ":":
        indices.pop()
    spread = torch.arange(math.prod(whole)) % value.numel()
    text = contents(value.reshape(-1)[spread].reshape(whole))
    return None if "unpacked(" in text else f"{_grouped(text)}[{', '.join(indices)}]"


def _expanded(value: torch.Tensor, contents: Callable[[torch.Tensor], str]) -> str | None:
    """One element along each dimension that is expanded; None if none is."""
    narrow = value
    for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
        if stride == 0 and size > 1:
            narrow = narrow.narrow(dim, 0, 1)
    if narrow is value:
        return None
    sizes = [-1 if n == m else n for n, m in zip(value.shape, narrow.shape, strict=True)]
    return f"{_grouped(strided(narrow, contents))}.expand({', '.join(map(str, sizes))})"


def _grouped(expression: str) -> str:
    """The expression in parentheses, if a method call would bind to its last part only."""
    simple = expression.startswith("torch.") and " + " not in expression.partition("(")[0]
    depth = 0
    for index, character in enumerate(expression):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and character == " " and index:
            simple = False
    return expression if simple else f"({expression})"
