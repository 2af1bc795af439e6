"""What no program can do: have written its results in less time than the memory takes for them.

Certain, unlike the roofline: counts only values that had to be written during the call. These are the different values
of a result that occur neither in what was given nor in the results of other inputs, so that no view, no table and no
earlier answer holds them; what caches may still hold is taken off. Says nothing of inputs: a program may know
that it need not read them all. Knows no clock.
"""

from __future__ import annotations

import torch

from stark.evaluator.judge.verify.oracle import as_real, pieces

SURELY = 2.0
"""How many times faster than the measured bandwidth writing may be. A copy, by which it is measured, reads as much as it
writes, and on a CPU may read what it overwrites too."""

PART_BYTES = 1 << 29
"""About how much is sorted at once, which takes several times as much memory."""

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fresh_bytes(
    results: list[torch.Tensor], given: list[torch.Tensor], elsewhere: list[torch.Tensor]
) -> int:
    """Bytes that a call has to write at least: one element for each value that it cannot have had before.

    `results` are its own, `given` its inputs and weights, `elsewhere` the results of other inputs.
    """
    own, had = ([as_real(t) for t in tensors] for tensors in (results, (*given, *elsewhere)))
    parts = 1 + 2 * (sum(t.nbytes for t in (*own, *had)) // PART_BYTES)  # odd, see `_values`
    total = 0
    for dtype in {result.dtype for result in own}:
        for part in range(parts):
            new = ~torch.isin(
                _values(own, dtype, part, parts),
                _values(had, dtype, part, parts),
                assume_unique=True,
            )
            total += int(new.sum()) * dtype.itemsize
    return total


def least_ms(fresh: int, cache_bytes: float, bandwidth_gb_s: float) -> float:
    """The time below which so many bytes cannot have been written to memory; 0 where caches hold them."""
    return max(fresh - cache_bytes, 0.0) / (SURELY * bandwidth_gb_s) / 1e6


def _values(tensors: list[torch.Tensor], dtype: torch.dtype, part: int, parts: int) -> torch.Tensor:
    """The different values of a type in some tensors: those whose bits, as a number, leave `part` when divided by `parts`.

    An odd number of parts shares out values of which half the bits are always zero, too.
    """
    found = [
        piece[piece.view(_BITS[dtype.itemsize]) % parts == part].unique()
        for tensor in tensors
        if tensor.dtype == dtype
        for (piece,) in pieces(tensor)
    ]
    if not found:
        return torch.empty(0, dtype=dtype, device=tensors[0].device)
    values = torch.cat(found).unique()
    numbers: torch.Tensor = values[values.isfinite()]  # every NaN is a value of its own
    return numbers
