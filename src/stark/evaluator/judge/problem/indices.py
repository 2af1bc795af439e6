"""Finds inputs that are indices or masks, and draws other values for them that the reference accepts.

A problem draws token numbers below 1,000 for a table of 50,000 rows. A candidate that handles only the first 1,000 would
pass, although the reference raises no error for the others. How far an index may go follows from the tables into which the
reference looks with it. Other integers, such as lengths, keep the values that the problem draws: nothing says what else
they may be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.values import is_inexact

aten = torch.ops.aten

LOOKUPS: dict[Any, Callable[..., list[tuple[torch.Tensor, int]]]] = {
    aten.embedding.default: lambda table, index, *_: [(index, table.shape[0])],
    aten.index_select.default: lambda table, axis, index: [(index, table.shape[axis])],
    aten.gather.default: lambda table, axis, index, **_: [(index, table.shape[axis])],
    aten.index.Tensor: lambda table, indices: [
        (index, table.shape[axis]) for axis, index in enumerate(indices) if index is not None
    ],
    aten.nll_loss_forward.default: lambda table, index, *_: [(index, table.shape[-1])],
}
"""Operators that look into a table: their arguments to each tensor of indices with the length of the axis that it is for."""

COPIES = (aten._to_copy.default, aten.clone.default)
"""Operators whose result holds the same numbers as their first argument, in new memory. A view has the same memory."""


def free(program: Program, one: Drawn, other: Drawn) -> dict[int, int]:
    """Inputs whose values can be drawn anew: by place among the tensors, the number below which an index must be; for a
    mask 2.

    `one` and `other` are two draws of the problem. An input that is the same in both belongs to the problem's structure,
    and so may be one that is sorted or has no value twice, such as a permutation.
    """
    kinds = {
        place: tensor.dtype
        for place, (tensor, another) in enumerate(zip(one.tensors, other.tensors, strict=True))
        if not (is_inexact(tensor) or torch.equal(tensor, another) or _ordered(tensor))
    }
    found = {place: 2 for place, dtype in kinds.items() if dtype == torch.bool}
    if len(found) == len(kinds):
        return found
    seen = _Lookups(one.tensors)
    with seen:
        program.run(one)
    return found | {place: most for place, most in seen.below.items() if place in kinds}


def drawn_anew(tensor: torch.Tensor, below: float, seed: int) -> torch.Tensor:
    """Other values for the tensor, evenly drawn."""
    generator = torch.Generator(tensor.device).manual_seed(seed)
    numbers = torch.randint(int(below), tensor.shape, generator=generator, device=tensor.device)
    return numbers.to(tensor.dtype)


def _ordered(tensor: torch.Tensor) -> bool:
    """Whether the values are sorted along the last axis, or all different."""
    tensor = tensor.long()
    steps = tensor.diff(dim=-1) if tensor.dim() else tensor[None].diff()
    rising, falling = bool((steps >= 0).all()), bool((steps <= 0).all())
    return rising or falling or len(tensor.unique()) == tensor.numel()


class _Lookups(TorchDispatchMode):
    """Records into how long an axis a program looks with each of these tensors, or with copies and views of it."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._places = {_memory(tensor): place for place, tensor in enumerate(tensors)}
        self._kept: list[torch.Tensor] = []
        """Copies, so that their memory is not used again meanwhile."""

        self.below: dict[int, int] = {}
        """By place among the tensors, the length of the shortest axis."""

    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        returned = operator(*arguments, **(named or {}))
        if operator in COPIES and (place := self._places.get(_memory(arguments[0]))) is not None:
            self._kept.append(returned)
            self._places[_memory(returned)] = place
        elif operator in LOOKUPS:
            for index, length in LOOKUPS[operator](*arguments, **(named or {})):
                if (place := self._places.get(_memory(index))) is not None:
                    self.below[place] = min(length, self.below.get(place, length))
        return returned


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
