"""How many floating-point operations an operator does, by torch's formulas."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry

SAME_WORK = {torch.ops.aten._int_mm: torch.ops.aten.mm}
"""Operators without a formula in torch, and others that do as many operations."""


def is_product(operator: Any) -> bool:
    """Whether the operator's operations are counted."""
    return SAME_WORK.get(operator, operator) in flop_registry


def flops_of(operator: Any, args: Any, kwargs: Any, result: object) -> int | None:
    """The operations of one call, of causal attention for keys that a query sees; None without a formula for it in torch."""
    formula = flop_registry.get(SAME_WORK.get(operator, operator))
    if formula is None:
        return None
    for given in (args, _with_all_heads(args)):
        with suppress(AssertionError, ValueError):
            counted = int(formula(*given, **kwargs, out_val=result))
            return round(counted * _share_seen(operator, args, kwargs))
    return None


def _share_seen(operator: Any, args: Any, kwargs: Any) -> float:
    """The share of all pairs of a query and a key that `is_causal` leaves; 1 for other operators."""
    if "scaled_dot_product" not in str(operator):
        return 1.0
    names = (argument.name for argument in operator.default._schema.arguments)
    given = dict(zip(names, args, strict=False)) | kwargs
    if not given.get("is_causal"):
        return 1.0
    queries, keys = given["query"].shape[-2], given["key"].shape[-2]
    first = min(queries, keys)  # query i sees i + 1 keys, until it sees all
    return float((first * (first + 1) / 2 + (queries - first) * keys) / (queries * keys))


def _with_all_heads(args: Any) -> Any:
    """Keys and values that several heads share (GQA), repeated: formulas before torch 2.12 refuse them otherwise."""
    tensors = [each for each in args if isinstance(each, torch.Tensor) and each.dim() == 4]
    heads = max((each.shape[1] for each in tensors), default=0)

    def repeated(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() != 4 or tensor.shape[1] in (0, heads):
            return tensor
        return tensor[:, :1].expand(-1, heads, -1, -1)

    return tree_map_only(torch.Tensor, repeated, args)
