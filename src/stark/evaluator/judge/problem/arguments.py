"""Checks whether a problem's arguments can be put into shared memory or sent to another process.

Each reason is the end of a sentence that begins with a function's name and "returns".
"""

from __future__ import annotations

import io
import pickle
import random
import reprlib
import sys

import torch
from torch.utils import _pytree as pytree

from stark.evaluator.candidate.program import seed_torch

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
"""The floating-point types of one byte that tensors may have."""


def seed_all(seed: int) -> None:
    """Seed torch, NumPy and Python's `random`, of which the judge itself draws nothing."""
    random.seed(seed)
    seed_torch(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)


def unsupported(tensor: torch.Tensor) -> str | None:
    """Return the reason why a tensor cannot be put into shared memory, or None if it can."""
    if tensor.is_nested:
        return "a nested tensor; return its parts or its padded form and nest them in forward"
    if tensor.layout is not torch.strided:
        return "a sparse tensor; return it dense (`.to_dense()`) and make it sparse in forward"
    if tensor.is_quantized:
        return "a quantized tensor; return its values and quantize them in forward"
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1 and tensor.dtype not in FP8:
        return f"a tensor of {tensor.dtype}, which is not supported; return it in bfloat16 and convert it in forward"
    if tensor.is_meta:
        return "a tensor on the device `meta`, which has no values"
    return None


def without_overlap(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, copied if several of its elements share memory (as after `expand`)."""
    reach = 0
    for extent, step in sorted(
        zip(tensor.shape, tensor.stride(), strict=True), key=lambda axis: axis[1]
    ):
        if extent > 1:
            if step <= reach:
                return tensor.clone(memory_format=torch.contiguous_format)
            reach += (extent - 1) * step
    return tensor


def serialized(value: object) -> bytes:
    """Serialize a value for another process. Raises ValueError with the reason if that fails."""
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer)
        torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    except Exception as error:  # pickling a user's object may raise anything
        raise ValueError(
            f"something that cannot be sent to another process ({error}); return numbers, strings, "
            "tensors and lists of them, or functions and classes defined at the file's top level"
        ) from error
    return buffer.getvalue()


def variation(first: object, second: object) -> str | None:
    """Return the first difference between the non-tensor arguments of two draws, or None."""
    (ours, form), (theirs, other) = pytree.tree_flatten(first), pytree.tree_flatten(second)
    if form != other:
        return f"arguments whose structure changes from draw to draw ({form}, then {other}); make it fixed"
    for one, two in zip(ours, theirs, strict=True):
        if type(one) is not type(two) or pickle.dumps(one) != pickle.dumps(two):
            return (
                f"an argument of type {type(one).__name__} that changes from draw to draw "
                f"({reprlib.repr(one)}, then {reprlib.repr(two)}); make it a tensor or a constant"
            )
    return None
