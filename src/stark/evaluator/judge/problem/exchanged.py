"""Puts other elements of an input in a few random places.

A problem repeats a row eight times, or fills up with zeros. A candidate that looks at two numbers of each row could take
rows for alike, or for zeros, that are not. All other regimes keep what repetitions and zeros have in common. Here elements
change at places that a look at few of them misses, and the values are the problem's own, which the reference bears.
"""

from __future__ import annotations

import torch

from stark.evaluator.judge.problem.nearby import keep_structure

LONE, LEAST = (4, 16), 16
"""By chance, so few or so many single elements change, but at most one in LEAST. The fewer, the seldomer the numbers are among
them that a candidate looks at; the more, the likelier is one in each kind of row."""

SHARE, SHORTEST, MOST = 32, 64, 512
"""Beside many, one in SHARE of a line along any axis of at least SHORTEST elements, up to MOST: of a long sum in half precision, one
element does not show."""

SAMPLE = 4096
"""About so many elements of a row, or of a column, must be zero for padding."""


def exchanged(tensor: torch.Tensor, seed: int, factor: float = 1.0) -> torch.Tensor:
    """The tensor with other elements in some places, times a factor.

    Zeros stay that may be structural, as in triangular or sparse matrices; not padding: rows of zeros, and zeros at the end of all
    rows.
    """
    if not (tensor.dim() and tensor.numel()):
        return tensor
    generator = torch.Generator().manual_seed(seed)
    found = tensor.clone()
    # Floats of one byte have few operators of their own.
    numbers = found.view(torch.uint8) if found.itemsize == 1 else found
    square = found.dim() > 1 and found.shape[-1] == found.shape[-2]
    rows_may_end = numbers.dim() > 1 and not square
    filled, width = _filled(numbers) if rows_may_end else found.shape[-1], found.shape[-1]
    places = _chosen(found.shape, generator)
    if 0 < filled < width:  # most places would lie in the padding, and zeros be exchanged for zeros
        places[-1, ::2] %= filled
        places = places.unique(dim=1)
    at = tuple(axis.to(found.device) for axis in places)
    free = (numbers[at] != 0) & numbers[at].isfinite() | (at[-1] >= filled)
    if rows_may_end:
        some = numbers[..., :: max(1, width // SAMPLE)]
        free |= (some[at[:-1]] == 0).all(1)
    at = tuple(axis[free] for axis in at)
    # They change places: no value occurs twice that was unique, so what is sorted or the largest stays unambiguous.
    numbers[at] = numbers[at].roll(1)
    if factor != 1.0 and found.itemsize > 1:
        found[at] *= factor
    keep_structure(found, tensor)
    return found


def _filled(numbers: torch.Tensor) -> int:
    """The number of columns before padding: an eighth of them or more, to the last one, that are zero in all rows."""
    rows, width = numbers.reshape(-1, numbers.shape[-1]), numbers.shape[-1]
    filled = (rows[:: max(1, len(rows) // SAMPLE)] != 0).any(0).nonzero()
    number = int(filled.amax()) + 1 if len(filled) else 0
    return number if number <= width - width // 8 else width


def _chosen(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """The indices of random elements by axis, some of which lie in one line along each long axis.

    They are few and chosen on the CPU, since a GPU would wait for each of many small steps.
    """
    number = LONE[int(torch.randint(2, (), generator=generator))]
    chosen = [_randomly(shape, min(number, max(shape.numel() // LEAST, 1)), generator)]
    for axis, extent in enumerate(shape):
        if extent >= SHORTEST and number == max(LONE):
            line = _randomly(shape, 1, generator).repeat(1, min(extent // SHARE, MOST))
            line[axis] = torch.randint(extent, line[axis].shape, generator=generator)
            chosen.append(line)
    places: torch.Tensor = torch.cat(chosen, 1).unique(dim=1)
    return places


def _randomly(shape: torch.Size, count: int, generator: torch.Generator) -> torch.Tensor:
    """The indices of so many random elements, by axis."""
    return torch.stack([torch.randint(n, (count,), generator=generator) for n in shape])
