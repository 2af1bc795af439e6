"""What arguments and results consist of: their tensors, copies of them, and their form."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stark.capturing.expressions.literals import is_constant
from stark.capturing.forms import TensorForm, form_key


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors in nested containers, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def leaves_of(value: Any) -> Iterator[Any]:
    """All leaves of nested containers that are neither tensors nor plain."""
    for leaf in pytree.tree_leaves(value):
        if not isinstance(leaf, torch.Tensor) and not is_constant(leaf):
            yield leaf


def copied(value: Any) -> Any:
    """A copy with the same structure, strides and `requires_grad`, which shares no memory with the value.

    A tensor that occurs twice is one tensor in the copy too.
    """
    with torch.inference_mode(False):
        return with_each(value, _copied)


def with_each(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same containers with changed tensors. A tensor that occurs twice is changed once."""
    return pytree.tree_map_only(torch.Tensor, cache(change), value)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    fresh = tensor.detach()
    if tensor.layout != torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return fresh.clone()
    made = fresh.clone(memory_format=torch.preserve_format)
    if made.stride() != fresh.stride() or torch._debug_has_internal_overlap(fresh) != 0:
        # expanded, or with gaps
        whole = fresh.as_strided((span_of(fresh),), (1,), fresh.storage_offset())
        made = whole.clone().as_strided(fresh.shape, fresh.stride())
    return made.requires_grad_(tensor.requires_grad)


def span_of(tensor: torch.Tensor) -> int:
    """The number of elements in memory from the tensor's first to its last."""
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def form_of(value: Any) -> Hashable:
    """All that a guard can see of a value without reading tensors, as a key."""
    return form_key(value, form_of_tensor, form_of_constant)


def form_of_tensor(tensor: torch.Tensor) -> Hashable:
    """The form of a tensor with its class, its device and whether it needs gradients."""
    return type(tensor), TensorForm.of(tensor), tensor.device, tensor.requires_grad


def form_of_constant(value: Any) -> Hashable:
    """The text of a constant; of other objects, their class."""
    return repr(value if is_constant(value) else type(value))
