"""Finds floating-point inputs that are the same in each draw, and draws slightly other values for them.

A problem passes an adjacency matrix or a table that it does not draw. A candidate that keeps what follows from it, such as
the inverse, would save that work in each timed call. So all draws but the problem's first ones change such inputs, if the
reference stays finite and accurate. What can be seen of their structure stays.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.values import is_inexact, same_values

STEPS = (0.1, 1e-3)
"""The largest relative change of a value, tried in this order: a positive definite matrix may bear only the smaller one."""


USED = 0.5
"""Share of a step that is used once the reference has borne all of it with some seeds, since it must bear it with every seed."""

MOST_CHANGED = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Numbers of a tensor that are changed in a draw at most: a part of a larger tensor, somewhere. More would take longer than the
draw itself."""


def constant(one: Drawn, other: Drawn) -> tuple[int, ...]:
    """Places of the inputs that have numbers other than integers, the same in two draws of a problem."""
    pairs = enumerate(zip(one.tensors, other.tensors, strict=True))
    return tuple(
        place
        for place, (tensor, another) in pairs
        if is_inexact(tensor) and tensor.numel() and same_values(tensor, another)
    )


def redrawn(drawn: Drawn, places: Collection[int], step: float, seed: int) -> Drawn:
    """The draw with other values in the tensors at these places."""
    tensors = list(drawn.tensors)
    for place in places:
        tensor = tensors[place]
        generator = torch.Generator(tensor.device).manual_seed(seed + place)
        tensors[place] = _partly_changed(tensor, step, generator).to(tensor.dtype)
    return Drawn(tensors, drawn.arguments)


def _partly_changed(tensor: torch.Tensor, step: float, generator: torch.Generator) -> torch.Tensor:
    """The tensor, changed as a whole or in a stretch along its longest axis; of a square matrix, along both."""
    most = MOST_CHANGED[tensor.device.type]
    if tensor.numel() <= most:
        return _changed(tensor, step, generator)
    axis = max(range(tensor.dim()), key=lambda each: tensor.shape[each])
    length = max(1, most * tensor.shape[axis] // tensor.numel())
    free = tensor.shape[axis] - length + 1
    begin = int(torch.randint(free, (), generator=generator, device=tensor.device))
    found = tensor.clone()
    part = found.narrow(axis, begin, length)
    if _is_square(tensor) and tensor.dim() == 2:
        part = part.narrow(1 - axis, begin, length)
    part.copy_(_changed(part, step, generator))
    return found


def _changed(tensor: torch.Tensor, step: float, generator: torch.Generator) -> torch.Tensor:
    """Each value is moved towards zero by a random share of up to `step`, so that values within [-1, 1] stay there.

    Zeros and infinite values stay, unless all values are zero, as of a first state. Symmetric matrices stay symmetric,
    sorted values sorted, and repeated halves (of a rotation table) repeated. Values of 0 and 1 are reordered instead.
    """
    wide = tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor
    shares = torch.rand(wide.shape, generator=generator, device=wide.device)
    if not wide.any():
        return step * (2 * shares - 1)
    if bool(((wide == 0) | (wide == 1)).all() and (wide == 0).any()):
        return _reordered(wide, generator)
    symmetric = _is_symmetric(wide)
    if symmetric:
        shares = torch.minimum(shares, shares.mT)
    half = wide.shape[-1] // 2 if wide.dim() else 0
    if half and 2 * half == wide.shape[-1]:
        if torch.equal(wide[..., :half], wide[..., half:]):
            shares[..., half:] = shares[..., :half]
        elif torch.equal(wide[..., ::2], wide[..., 1::2]):
            shares[..., 1::2] = shares[..., ::2]
    changed = wide * (1 - step * shares).to(
        wide.dtype.to_real() if wide.is_complex() else wide.dtype
    )
    if wide.is_complex() or symmetric or not wide.dim():
        return changed
    steps = wide.diff(dim=-1)
    if bool(steps.any()) and (bool((steps >= 0).all()) or bool((steps <= 0).all())):
        changed = changed.sort(dim=-1, descending=bool((steps <= 0).all())).values
    return changed


def _reordered(flags: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Flags in another order: the rows, the nodes of a symmetric matrix, or nothing of a triangular mask."""
    axis = max(flags.dim() - 2, 0)
    triangles = (flags.tril(), flags.triu()) if _is_square(flags) else ()
    if not flags.dim() or any(torch.equal(part, flags) for part in triangles):
        return flags
    order = torch.randperm(flags.shape[axis], generator=generator, device=flags.device)
    reordered = flags.index_select(axis, order)
    return reordered.index_select(axis + 1, order) if _is_symmetric(flags) else reordered


def _is_square(tensor: torch.Tensor) -> bool:
    return tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2]


def _is_symmetric(tensor: torch.Tensor) -> bool:
    return _is_square(tensor) and torch.equal(tensor, tensor.mT)
