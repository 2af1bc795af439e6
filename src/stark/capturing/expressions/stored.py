"""Writes a tensor as an expression that makes exactly this tensor: by a pattern, else from its compressed bytes."""

from __future__ import annotations

import base64
import zlib

import torch

from stark.capturing.cannot import CannotCapture
from stark.capturing.expressions.literals import literal, short, sizes

MOST_CHARACTERS = 20_000
"""A stored tensor takes no more; it is part of every prompt."""

FEW = 16
"""Tensors with at most so many elements are written out."""

UNPACKED = '''def unpacked(text, dtype, shape):
    """A stored tensor."""
    data = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(data, dtype=dtype).reshape(shape).clone()'''
"""The function that captured files use for compressed tensors."""


def exact(tensor: torch.Tensor) -> str:
    """An expression that makes this tensor. Raises CannotCapture if it is too large."""
    value = tensor.detach().cpu()
    text = pattern(value)
    if text is None and value.numel() <= FEW and value.dtype in SAFE:
        text = f"torch.tensor({literal(value.tolist())}{_typed(value)})"
    return text or packed(value)


SAFE = {
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float32,
    torch.float64,
}
"""Types whose values survive being written as numbers."""


def pattern(value: torch.Tensor) -> str | None:
    """A short expression for constants, ranges, and masks; None if there is none."""
    shape, typed = tuple(value.shape), f"dtype={value.dtype}"
    if value.numel() == 0:
        return f"torch.empty({shape}, {typed})"
    if value.is_complex() or (value.dtype.itemsize == 1 and value.is_floating_point()):
        return None
    flat = value.reshape(-1)
    if bool((flat == flat[0]).all()):
        return _constant(flat[0], shape, value.dtype)
    return _range(value) or two_valued(value)


def _constant(element: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> str:
    number = element.item()
    if dtype.is_floating_point and number in (0.0, 1.0) and str(number)[0] != "-":
        return f"torch.{'ones' if number else 'zeros'}({sizes(shape)}{short(dtype)})"
    if dtype == torch.bool:
        return f"torch.{'ones' if number else 'zeros'}({sizes(shape)}, dtype=torch.bool)"
    return f"torch.full({shape}, {literal(number)}, dtype={dtype})"


def _range(value: torch.Tensor) -> str | None:
    """The same run of integers in every row."""
    if value.is_floating_point() or value.dtype == torch.bool or value.shape[-1] < 2:
        return None
    rows = value.reshape(-1, value.shape[-1])
    start, step = int(rows[0, 0]), int(rows[0, 1]) - int(rows[0, 0])
    if not step or not bool((rows == rows[0]).all()):
        return None
    end = start + step * rows.shape[1]
    if not torch.equal(rows[0], torch.arange(start, end, step, dtype=value.dtype)):
        return None
    bounds = f"{end}" if (start, step) == (0, 1) else f"{start}, {end}"
    bounds += "" if step == 1 else f", {step}"
    text = f"torch.arange({bounds}{'' if value.dtype == torch.int64 else f', dtype={value.dtype}'})"
    return text if value.dim() == 1 else f"{text}.expand({tuple(value.shape)})"


def two_valued(value: torch.Tensor) -> str | None:
    """A causal mask of any two values."""
    if value.dim() < 1:
        return None
    values = value.reshape(-1).unique()
    if len(values) != 2:
        return None
    high = value == values[1]
    text = _causal(high)
    if text is None or value.dtype == torch.bool:
        return text
    numbers = [
        f"torch.tensor({literal(v)}, dtype={value.dtype})" for v in reversed(values.tolist())
    ]
    return f"torch.where({text}, {', '.join(numbers)})"


def _causal(high: torch.Tensor) -> str | None:
    """A triangle in the last two dimensions, such as a causal mask or a sliding window of one side."""
    if high.dim() < 2 or min(high.shape[-2:]) < 2:
        return None
    rows, columns = high.shape[-2:]
    ones = f"torch.ones({rows}, {columns}, dtype=torch.bool)"
    for method in ("tril", "triu"):
        for diagonal in {0, 1, -1, columns - rows, columns - rows + 1}:
            triangle = getattr(torch.ones(rows, columns, dtype=torch.bool), method)(diagonal)
            if bool((high == triangle).all()):
                text = f"{ones}.{method}({diagonal or ''})"
                return text if high.dim() == 2 else f"{text}.expand({tuple(high.shape)})"
    return None


def packed(value: torch.Tensor) -> str:
    """The compressed bytes. Raises CannotCapture if they take more than MOST_CHARACTERS."""
    shape = tuple(value.shape)
    raw = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    text = base64.b85encode(zlib.compress(raw, 9)).decode()
    if len(text) > MOST_CHARACTERS:
        raise CannotCapture(
            f"a tensor of shape {shape} would take {len(text) // 1000} kB of text in the file"
        )
    return f'unpacked("{text}", {value.dtype}, {shape})'


def _typed(value: torch.Tensor) -> str:
    """The dtype of a tensor that is written out, unless it follows from the numbers."""
    follows = {torch.int64, torch.float32, torch.bool}
    return "" if value.dtype in follows and value.numel() else f", dtype={value.dtype}"
