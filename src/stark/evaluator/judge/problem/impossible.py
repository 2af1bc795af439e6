"""What no program can do: have written its results in less time than the memory takes for them.

Certain, unlike the roofline: counts only values that had to be written during the call. These are the different values
of a result that occur neither in what was given nor in the results of other inputs, so that no view, no table and no
earlier answer holds them; what caches may still hold is taken off. Says nothing of inputs: a program may know
that it need not read them all. Knows no clock.
"""

from __future__ import annotations

import torch

from stark.evaluator.judge.verify.oracle import as_real

SURELY = 2.0
"""How many times faster than the measured bandwidth writing may be. A copy, by which it is measured, reads as much as it
writes, and on a CPU may read what it overwrites too."""


def fresh_bytes(
    results: list[torch.Tensor], given: list[torch.Tensor], elsewhere: list[torch.Tensor]
) -> int:
    """Bytes that a call has to write at least: one element for each value that it cannot have had before.

    `results` are its own, `given` its inputs and weights, `elsewhere` the results of other inputs.
    """
    total = 0
    known = [as_real(tensor) for tensor in (*given, *elsewhere)]
    for dtype in {as_real(result).dtype for result in results}:
        own = _values([as_real(result) for result in results], dtype)
        had = _values(known, dtype)
        total += int((~torch.isin(own, had, assume_unique=True)).sum()) * dtype.itemsize
    return total


def least_ms(fresh: int, cache_bytes: float, bandwidth_gb_s: float) -> float:
    """The time below which so many bytes cannot have been written to memory; 0 where caches hold them."""
    return max(fresh - cache_bytes, 0.0) / (SURELY * bandwidth_gb_s) / 1e6


def _values(tensors: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """The different values of a type in some tensors."""
    found = [tensor.reshape(-1).unique() for tensor in tensors if tensor.dtype == dtype]
    if not found:
        return torch.empty(0, dtype=dtype, device=tensors[0].device)
    values = torch.cat(found).unique()
    numbers: torch.Tensor = values[values.isfinite()]  # every NaN is a value of its own
    return numbers
