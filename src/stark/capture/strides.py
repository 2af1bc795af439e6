"""Writes tensors with recorded strides: contiguous, channels last, permuted, expanded, or with gaps."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def strided(value: torch.Tensor, contents: Callable[[torch.Tensor], str]) -> str:
    """An expression with the shape and strides of `value`; `contents` writes a contiguous tensor's values."""
    if value.is_contiguous():
        return contents(value)
    if 0 in value.stride() and any(
        n > 1 and s == 0 for n, s in zip(value.shape, value.stride(), strict=True)
    ):
        return _expanded(value, contents)
    if value.dim() in (4, 5) and value.is_contiguous(memory_format=CHANNELS_LAST[value.dim()]):
        made = _grouped(contents(value.contiguous()))
        return f"{made}.to(memory_format={CHANNELS_LAST[value.dim()]})"
    strides = value.stride()
    order = sorted(range(value.dim()), key=lambda i: (-strides[i], i))
    straight = value.permute(order)
    if straight.is_contiguous():
        back = [order.index(i) for i in range(value.dim())]
        moved = [i for i, j in enumerate(back) if i != j]
        method = (
            f"transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f"permute{tuple(back)}"
        )
        return f"{_grouped(contents(straight))}.{method}"
    if (text := _sliced(value, contents)) is not None:
        return text
    made = f"torch.empty_strided({tuple(value.shape)}, {value.stride()}, dtype={value.dtype})"
    return f"{made}.copy_({contents(value.contiguous())})"


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
    text = f"{_grouped(contents(value.reshape(-1)[spread].reshape(whole)))}[{', '.join(indices)}]"
    if "unpacked(" in text:
        return None
    made = eval(text, {"torch": torch})
    return text if (made.shape, made.stride()) == (value.shape, value.stride()) else None


def _expanded(value: torch.Tensor, contents: Callable[[torch.Tensor], str]) -> str:
    """One element along each dimension that is expanded."""
    narrow = value
    for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
        if stride == 0 and size > 1:
            narrow = narrow.narrow(dim, 0, 1)
    sizes = [-1 if n == m else n for n, m in zip(value.shape, narrow.shape, strict=True)]
    whole = narrow if narrow.is_contiguous() else narrow.contiguous()
    made = contents(whole) if narrow.is_contiguous() else strided(narrow, contents)
    return f"{_grouped(made)}.expand({', '.join(map(str, sizes))})"


def _grouped(expression: str) -> str:
    """The expression in parentheses, if a method call would bind to its last part only."""
    simple = expression.startswith("torch.") and " + " not in expression.partition("(")[0]
    depth = 0
    for index, character in enumerate(expression):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and character == " " and index:
            simple = False
    return expression if simple else f"({expression})"
