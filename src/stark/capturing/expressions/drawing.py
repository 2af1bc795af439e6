"""Writes recorded tensors as draws: expressions of new tensors with the same form, distribution and structure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from stark.capturing.calls.values import span_of
from stark.capturing.cannot import CannotCapture
from stark.capturing.expressions.literals import literal, nested, short, sizes
from stark.capturing.expressions.stored import FEW, exact, packed, pattern

SAMPLE = 1 << 20
"""Statistics are taken of at most so many elements."""

MOST_STORED_INTEGERS = 4096


def draw_value(value: Any) -> str:
    """Nested containers of tensors and constants. Raises CannotCapture for other types."""
    if isinstance(value, torch.Tensor):
        return draw(value)
    return nested(value, draw_value) or literal(value)


def draw(tensor: torch.Tensor) -> str:
    """An expression of a tensor with the same shape, dtype and strides, and values as they may be."""
    value = tensor.detach().cpu()
    if value.dtype == torch.bool:
        contents = _boolean
    elif value.is_complex():
        contents = _complex
    else:
        contents = _floating if value.is_floating_point() else _integers
    if not value.is_contiguous() and contents in (_boolean, _integers):
        text = contents(value)  # may be expanded by itself
        if _has_strides(text, value):
            return text
    return strided(value, contents)


def _complex(value: torch.Tensor) -> str:
    return f"torch.randn({sizes(value.shape)}, dtype={value.dtype})"


def parameter(tensor: torch.Tensor) -> str:
    """A draw for weights: normal with the same mean and deviation, or a constant."""
    value = tensor.detach()
    if not value.is_floating_point():
        return exact(value)
    mean, deviation = _moments(value)
    shape = tuple(value.shape)
    if deviation == 0 and math.isfinite(mean):
        if mean in (0.0, 1.0):
            return f"torch.{'ones' if mean else 'zeros'}({sizes(shape)}{short(value.dtype)})"
        return f"torch.full({shape}, {mean!r}{short(value.dtype)})"
    return _normal(mean, deviation, shape, value.dtype)


def _floating(value: torch.Tensor) -> str:
    """The values of a contiguous floating-point tensor."""
    shape = tuple(value.shape)
    if value.dtype.itemsize > 1 and (text := pattern(value)):
        return text
    if (
        value.numel() > 1
        and value.dtype.itemsize > 1
        and len(value.reshape(-1)[:SAMPLE].unique()) == 2
    ):
        return exact(value)
    finite = value.float()[torch.isfinite(value.float())]
    if finite.numel() < value.numel():
        return exact(value)
    mean, deviation = _moments(value)
    if abs(mean) * math.sqrt(value.numel()) < 3 * deviation:
        mean = 0.0  # as it may be by chance
    low, high = float(finite.min()), float(finite.max())
    if low >= 0 and high <= 1 and high > 0.5 and abs(deviation - 0.29) < 0.06:
        typed = short(value.dtype) if value.dtype.itemsize > 1 else ""
        text = f"torch.rand({sizes(shape)}{typed})"
        return text if typed == short(value.dtype) else f"{text}.to({value.dtype})"
    return _normal(mean, deviation, shape, value.dtype)


def _normal(mean: float, deviation: float, shape: tuple[int, ...], dtype: torch.dtype) -> str:
    """`mean + deviation * torch.randn(shape)`, without what makes no difference."""
    wide = dtype.itemsize > 1
    text = f"torch.randn({sizes(shape)}{short(dtype) if wide else ''})"
    if not math.isfinite(deviation) or deviation == 0:
        text = f"torch.full({shape}, {literal(mean)}{short(dtype) if wide else ''})"
    else:
        if not 0.8 < deviation < 1.25:
            text = f"{deviation:.3g} * {text}"
        if abs(mean) > 0.05 * deviation:
            text = f"{mean:.3g} + {text}"
    if not wide:
        text = f"({text}).to({dtype})"
    return text


def _moments(value: torch.Tensor) -> tuple[float, float]:
    """The mean and the deviation of a sample."""
    flat = value.reshape(-1)
    sample = flat[:: max(1, flat.numel() // SAMPLE)].float()
    return float(sample.mean()), float(sample.std()) if sample.numel() > 1 else 0.0


def _integers(value: torch.Tensor) -> str:
    """Few integers, a permutation or sorted offsets as they are; others as random numbers within the bounds."""
    if (text := pattern(value)) is not None and _has_strides(text, value):
        return text
    shape, flat = tuple(value.shape), value.reshape(-1)
    typed = "" if value.dtype == torch.int64 else f", dtype={value.dtype}"
    if value.dim() == 1 and torch.equal(
        flat.sort().values, torch.arange(len(flat), dtype=value.dtype)
    ):
        return f"torch.randperm({len(flat)}{typed})"
    is_sorted = value.dim() == 1 and bool((flat.diff() >= 0).all())
    if value.numel() <= FEW or (is_sorted and value.numel() <= MOST_STORED_INTEGERS):
        return exact(value)
    low, high = int(flat.min()), int(flat.max())
    return f"torch.randint({low}, {high + 1}, {shape}{typed})"


def _boolean(value: torch.Tensor) -> str:
    """A mask without a pattern: stored, or drawn with the same share if it is too large."""
    if (text := pattern(value)) is not None and _has_strides(text, value):
        return text
    try:
        return packed(value)
    except CannotCapture:
        return f"torch.rand({sizes(value.shape)}) < {float(value.float().mean()):.3g}"


def _has_strides(text: str, value: torch.Tensor) -> bool:
    """Whether the expression has the strides of the value."""
    if ".expand(" not in text:
        return value.is_contiguous()
    made = eval(text, {"torch": torch})
    return bool(made.stride() == value.stride())


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
