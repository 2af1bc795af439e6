"""Draws values near those that a problem draws, for all floating-point inputs.

A problem passes an adjacency matrix or a table that it does not draw, one of a few designs, a window of a recording, rows of a
fixed set, or a matrix times a drawn factor. A candidate that keeps what follows from it, such as the inverse, keys or answers,
would save that work in each timed call. So all draws but the problem's first ones change each number, if the reference stays
finite and accurate. What can be seen of an input's structure stays. Buffers that forward changes are like inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.values import is_inexact, same_values

STEPS = (0.1, 1e-3)
"""The largest relative change of a value, tried in this order: a positive definite matrix may bear only the smaller one."""

USED = 0.5
"""Share of a step that is used once the reference has borne all of it with some seeds, since it must bear it with every seed."""

PERIOD = {"cpu": (1 << 18) - 5, "cuda": (1 << 24) - 3}
"""How many shares are drawn for a tensor at most. They repeat in a larger one: drawing more would take longer than the inputs
themselves. A prime number, so that rows begin at other places among them and the change of a matrix has full rank."""

FLIPPED = 64
"""Of the edges of a graph, one in so many goes, and as many new ones come."""

CORNER = 64
"""Rows and columns that nearly always show that a matrix is not symmetric."""


def changeable(one: Drawn, other: Drawn) -> dict[int, bool]:
    """Return the places of the inputs that change: all floating-point ones, and graphs that are the same in both draws.

    With each, whether both draws of it are the same. The state's places follow the inputs'.
    """
    found = {}
    pairs = zip((*one.tensors, *one.state), (*other.tensors, *other.state), strict=True)
    for place, (tensor, another) in enumerate(pairs):
        same = same_values(tensor, another)
        if tensor.numel() and (is_inexact(tensor) or (same and _is_graph(tensor))):
            found[place] = same
    return found


def redrawn(tensor: torch.Tensor, step: float, seed: int) -> torch.Tensor:
    """The tensor with other values, each changed by up to `step`, or by more if its type would round that away."""
    if is_inexact(tensor):
        step = max(step, 1.5 * torch.finfo(tensor.dtype).eps)
    generator = torch.Generator(tensor.device).manual_seed(seed)
    changed = _changed(tensor, step, generator).to(tensor.dtype)
    return changed if tensor.is_contiguous() else torch.empty_like(tensor).copy_(changed)


def _changed(tensor: torch.Tensor, step: float, generator: torch.Generator) -> torch.Tensor:
    """Each value is moved towards zero by a random share of up to `step`, so that values within [-1, 1] stay there.

    Zeros and infinite values stay, unless all values are zero, as of a first state. Symmetric matrices stay symmetric,
    sorted values sorted, and repeated halves (of a rotation table) repeated. Values of 0 and 1 are reordered instead.
    """
    if tensor.dtype == torch.bool:
        return _reordered(tensor, generator)
    if tensor.is_floating_point() and tensor.itemsize == 1:
        tensor = tensor.float()  # one-byte floats have no arithmetic
    found = tensor.clone(memory_format=torch.contiguous_format)
    period = PERIOD[tensor.device.type]
    shares = torch.rand(
        min(period, found.numel()), generator=generator, device=found.device, dtype=torch.float32
    )
    pieces = found.flatten().split(period)
    if not any(bool(piece.any()) for piece in pieces):
        for piece in pieces:
            piece.copy_(step * (2 * shares[: len(piece)] - 1))
        return found
    if _are_flags(pieces):
        return _reordered(tensor, generator)
    factors = 1 - step * shares
    for piece in pieces:
        piece.copy_(piece * factors[: len(piece)])
    keep_structure(found, tensor)
    return found


def keep_structure(changed: torch.Tensor, tensor: torch.Tensor) -> None:
    """Give changed values what can be seen of the structure of the former ones, on which an honest kernel may rely.

    The first row, or one block, nearly always shows that there is none.
    """
    if not (tensor.dim() and tensor.numel()):
        return
    if tensor.is_floating_point() and tensor.itemsize == 1:  # these have few operators of their own
        changed, tensor = changed.view(torch.uint8), tensor.view(torch.uint8)
    if _is_symmetric(tensor):
        changed.copy_(_mirrored(changed))
        return
    half, first = tensor.shape[-1] // 2, tensor[(0,) * (tensor.dim() - 1)]
    for one, other in ((slice(half), slice(half, None)), (slice(0, None, 2), slice(1, None, 2))):
        pairs = ((each[..., one], each[..., other]) for each in (first, tensor))
        if half and 2 * half == tensor.shape[-1] and all(torch.equal(*pair) for pair in pairs):
            changed[..., other] = changed[..., one]
            break
    if not tensor.is_floating_point():
        return
    rises, falls = _is_sorted(tensor, torch.ge), _is_sorted(tensor, torch.le)
    if rises != falls:
        changed.copy_(changed.sort(dim=-1, descending=falls).values)


def _are_flags(pieces: Sequence[torch.Tensor]) -> bool:
    """Whether there are zeros, and else only ones."""
    only = all(bool(((each == 0) | (each == 1)).all()) for each in pieces)
    return only and not all(bool(each.all()) for each in pieces)


def _reordered(flags: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Flags in another order: the rows, the nodes of a symmetric matrix with a few other edges, or nothing of a triangular mask."""
    axis = max(flags.dim() - 2, 0)
    triangles = (flags.tril(), flags.triu()) if _is_square(flags) else ()
    if not flags.dim() or any(torch.equal(part, flags) for part in triangles):
        return flags
    order = torch.randperm(flags.shape[axis], generator=generator, device=flags.device)
    reordered = flags.index_select(axis, order)
    if not _is_symmetric(flags):
        return reordered
    graph = reordered.index_select(axis + 1, order)
    # Who finds the order out could still use what was kept of the former graph: some edges change.
    number = -(-int((flags != 0).sum()) // (2 * FLIPPED))
    upper = torch.ones_like(flags, dtype=torch.bool).triu(1)
    for value in (0, 1):
        places = ((graph == value) & upper).flatten().nonzero().flatten()
        chosen = torch.randperm(len(places), generator=generator, device=flags.device)[:number]
        graph.view(-1)[places[chosen]] = 1 - value
    return _mirrored(graph)


def _mirrored(tensor: torch.Tensor) -> torch.Tensor:
    """The symmetric matrices with these upper halves."""
    return tensor.triu() + tensor.triu(1).mT


def _is_graph(flags: torch.Tensor) -> bool:
    """Whether booleans say which nodes are neighbours, near and far ones; in a local mask all are near."""
    return (
        flags.dtype == torch.bool
        and _is_symmetric(flags)
        and bool(flags.triu(flags.shape[-1] // 2).any())
    )


def _is_square(tensor: torch.Tensor) -> bool:
    return tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2]


def _is_symmetric(tensor: torch.Tensor) -> bool:
    return _is_square(tensor) and all(
        torch.equal(each, each.mT) for each in (tensor[..., :CORNER, :CORNER], tensor)
    )


def _is_sorted(tensor: torch.Tensor, compare: Callable[..., torch.Tensor]) -> bool:
    """Whether each value and the one before it compare so, in the first row and then in all."""
    first = tensor[(0,) * (tensor.dim() - 1)]
    return all(bool(compare(each[..., 1:], each[..., :-1]).all()) for each in (first, tensor))
