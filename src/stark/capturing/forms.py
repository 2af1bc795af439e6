"""The form of a value: its containers, constants, and what can be seen of its tensors without reading them.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class TensorForm:
    """Dtype, shape and strides of one tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorForm:
        """The form of a tensor. Sparse tensors have no strides."""
        stride = tuple(tensor.stride()) if tensor.layout is torch.strided else ()
        return cls(tensor.dtype, tuple(tensor.shape), stride)

    @property
    def contiguous(self) -> bool:
        """Whether `is_contiguous()` is true for tensors of this form."""
        return self.same_strides(torch.empty(self.shape, device="meta").stride())

    def same_strides(self, stride: tuple[int, ...]) -> bool:
        """Whether the strides place all elements alike. Those of dimensions with one element do not matter."""
        pairs = zip(self.shape, self.stride, stride, strict=True)
        return 0 in self.shape or all(extent == 1 or one == two for extent, one, two in pairs)

    def fault(self, tensor: torch.Tensor) -> tuple[str, str] | None:
        """What differs in a tensor, short and in full; None if nothing does."""
        if tensor.dtype is not self.dtype:
            return "another dtype", f"{tensor.dtype}, not {self.dtype}"
        if tuple(tensor.shape) != self.shape:
            return "another shape", f"{list(tensor.shape)}, not {list(self.shape)}"
        if not self.same_strides(tensor.stride()):
            return "other strides", f"{tensor.stride()}, not {self.stride}"
        if tensor.is_conj() or tensor.is_neg():
            return "a conjugation or negation to apply", "resolve_conj() and resolve_neg() apply it"
        return None


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor or form in nested tuples, lists and dicts, with its place, such as `[0]['mask']`."""
    if isinstance(value, torch.Tensor | TensorForm):
        yield path, value
    elif isinstance(value, tuple | list):
        for index, part in enumerate(value):
            yield from tensors_in(part, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from tensors_in(part, f"{path}[{key!r}]")


def with_tensors(pattern: Any, found: Iterator[Any]) -> Any:
    """The pattern with its tensors or forms replaced, in order. Keeps the types of containers."""
    if isinstance(pattern, torch.Tensor | TensorForm):
        return next(found)
    if isinstance(pattern, dict):
        return type(pattern)({key: with_tensors(part, found) for key, part in pattern.items()})
    if isinstance(pattern, tuple | list):
        parts = [with_tensors(part, found) for part in pattern]
        return type(pattern)(*parts) if hasattr(pattern, "_fields") else type(pattern)(parts)
    return pattern


def formed(value: Any) -> Any:
    """The value with a `TensorForm` in place of each tensor."""
    return with_tensors(value, (TensorForm.of(tensor) for _, tensor in tensors_in(value)))


def form_key(
    value: Any,
    of_tensor: Callable[[torch.Tensor], Hashable],
    of_other: Callable[[Any], Hashable],
) -> Hashable:
    """The form as a key for dictionaries: containers as tuples that begin with their type, and two functions of the rest."""
    if isinstance(value, torch.Tensor):
        return of_tensor(value)
    if isinstance(value, tuple | list):
        return (type(value), *(form_key(part, of_tensor, of_other) for part in value))
    if isinstance(value, dict):
        parts = ((repr(key), form_key(part, of_tensor, of_other)) for key, part in value.items())
        return (type(value), *parts)
    return of_other(value)
