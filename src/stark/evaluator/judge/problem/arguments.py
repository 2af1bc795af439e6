"""What a problem may hand to its module: which tensors can lie in shared memory, what can travel to another process.

Says what is wrong in the rest of a sentence that begins with the function at fault. Knows no problem.
"""

from __future__ import annotations

import io
import pickle
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils import _pytree as pytree


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Every generator that a problem may draw from starts at this seed; Python's own goes on afterwards as before."""
    before = random.getstate()
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(before)


def unfit(tensor: torch.Tensor) -> str | None:
    """Why this tensor cannot lie in shared memory, or None if it can."""
    if tensor.is_nested:
        return "a nested tensor; return its parts or its padded form and nest them in forward"
    if tensor.layout is not torch.strided:
        return "a sparse tensor; return it dense (`.to_dense()`) and make it sparse in forward"
    if tensor.is_quantized:
        return "a quantized tensor; return its numbers and quantize them in forward"
    if tensor.is_meta:
        return "a tensor on the device `meta`, which holds no numbers"
    return None


def of_its_own(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, in memory of its own where several of its elements share one place (as after `expand`)."""
    reach = 0
    for extent, step in sorted(
        zip(tensor.shape, tensor.stride(), strict=True), key=lambda axis: axis[1]
    ):
        if extent > 1:
            if step <= reach:
                return tensor.clone(memory_format=torch.contiguous_format)
            reach += (extent - 1) * step
    return tensor


def packed(value: object) -> bytes:
    """The value as it travels to another process. Raises ValueError with the reason why it cannot."""
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer)
        torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    except Exception as error:  # the boundary: any object may refuse to be pickled, in any way
        raise ValueError(
            f"something that cannot be handed to another process ({error}); return numbers, strings, tensors "
            "and lists of them, or functions and classes defined at the top of the file"
        ) from error
    return buffer.getvalue()


def varying(first: object, second: object) -> str | None:
    """What else than tensors differs between two nested values of the same form, or None."""
    (ours, form), (theirs, other) = pytree.tree_flatten(first), pytree.tree_flatten(second)
    if form != other:
        return f"another structure on every draw ({form}, then {other}); make it fixed"
    for one, two in zip(ours, theirs, strict=True):
        if type(one) is not type(two) or pickle.dumps(one) != pickle.dumps(two):
            return (
                f"an argument of type {type(one).__name__} that changes from draw to draw ({_short(one)}, then {_short(two)}); "
                "make it a tensor, or the same every time"
            )
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
