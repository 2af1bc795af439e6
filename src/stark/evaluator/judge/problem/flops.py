"""How many floating-point operations an operator does, by torch's formulas."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry


def flops_of(operator: Any, args: Any, kwargs: Any, result: object) -> int | None:
    """The operations of one call; None if torch has no formula for the operator or for these shapes."""
    formula = flop_registry.get(operator)
    if formula is None:
        return None
    for given in (args, _with_all_heads(args)):
        with suppress(AssertionError, ValueError):
            return int(formula(*given, **kwargs, out_val=result))
    return None


def _with_all_heads(args: Any) -> Any:
    """Keys and values that several heads share (GQA), repeated: formulas before torch 2.12 refuse them otherwise."""
    tensors = [each for each in args if isinstance(each, torch.Tensor) and each.dim() == 4]
    heads = max((each.shape[1] for each in tensors), default=0)

    def repeated(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() != 4 or tensor.shape[1] in (0, heads):
            return tensor
        return tensor[:, :1].expand(-1, heads, -1, -1)

    return tree_map_only(torch.Tensor, repeated, args)
