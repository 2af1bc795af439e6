"""Computes a hard lower bound on a call's time: the time to write its new values to memory.

Unlike the roofline, this bound is certain. It counts only values that the call must have written:
distinct values in the results that occur neither in the inputs, nor in the weights, nor in the results
for other inputs. Such values cannot come from a view, a lookup table or an earlier result. The bytes
that may still be in caches are subtracted.
Reads are not counted, because a program may not need all of its inputs.
"""

from __future__ import annotations

import torch

from stark.evaluator.judge.verify.errors import BITS, as_real, pieces

WRITE_MARGIN = 2.0
"""Largest possible write speed as a multiple of the measured bandwidth, which is that of a copy: it reads as much as it
writes, and on a CPU it may also read what it overwrites."""

PART_BYTES = 1 << 29
"""Approximate bytes sorted at once; sorting takes several times as much memory."""


def fresh_bytes(
    results: list[torch.Tensor], given: list[torch.Tensor], elsewhere: list[torch.Tensor]
) -> int:
    """The least bytes that a call must write: an element per value that is not in the inputs and weights `given`, nor in the
    results for other inputs.
    """
    own, had = ([as_real(t) for t in tensors] for tensors in (results, (*given, *elsewhere)))
    parts = 1 + 2 * (sum(t.nbytes for t in (*own, *had)) // PART_BYTES)  # odd, see `_values`
    total = 0
    for dtype in {result.dtype for result in own}:
        for part in range(parts):
            ours, known = (_values(each, dtype, part, parts) for each in (own, had))
            new = ~torch.isin(ours, known, assume_unique=True)
            total += int(new.sum()) * dtype.itemsize
    return total


def least_ms(fresh: int, cache_bytes: float, bandwidth_gb_s: float) -> float:
    """Return the least milliseconds to write `fresh` bytes to memory; 0 if caches can hold them."""
    return max(fresh - cache_bytes, 0.0) / (WRITE_MARGIN * bandwidth_gb_s) / 1e6


def _values(tensors: list[torch.Tensor], dtype: torch.dtype, part: int, parts: int) -> torch.Tensor:
    """The distinct finite values of a type whose bits, read as an integer, are `part` modulo `parts`.

    If `parts` is odd, the parts are balanced even if the lower bits of all values are zero.
    """
    found = [
        piece[piece.view(BITS[dtype.itemsize]) % parts == part].unique()
        for tensor in tensors
        if tensor.dtype == dtype
        for (piece,) in pieces(tensor)
    ]
    if not found:
        return torch.empty(0, dtype=dtype, device=tensors[0].device)
    values = torch.cat(found).unique()
    numbers: torch.Tensor = values[values.isfinite()]  # `unique` keeps every NaN
    return numbers
