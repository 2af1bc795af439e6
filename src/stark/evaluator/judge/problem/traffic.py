"""Which bytes an operator reads and writes: the least that a program moves follows from them.

A lookup counts each row that it fetches once, and not the table, so that an embedding, an expert or a page of a cache that
is not used costs nothing. A write of rows counts those rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

ROWS = {"embedding", "index_select", "index"}
"""Operators that read rows of their first argument, named by whole numbers in another."""

LOOKUPS = {*ROWS, "gather", "take", "take_along_dim"}
"""Operators that read at most as many bytes of their first argument as they return."""

OVERWRITING = {"copy_", "fill_", "zero_", "index_copy_", "index_put_"}
"""Operators that write to their first argument without reading it."""

WRITING_ROWS = {"index_copy_", "index_put_"}
"""Operators that write as many bytes as their largest other argument has."""

FREE = {"_unsafe_view", "detach", "alias", "lift_fresh", "empty", "empty_like", "empty_strided"}
"""Operators without work, besides those that return views."""


class Part(NamedTuple):
    """What a tensor shows of its storage."""

    storage: int
    offset: int
    size: int
    """Bytes."""

    capacity: int
    """Bytes of the whole storage."""


@cache
def nature(func: Any) -> tuple[str, bool]:
    """The operator's name, and whether it does no work: it returns a view, or memory without contents."""
    name = func._schema.name.rpartition("::")[2]
    returns = [each.alias_info for each in func._schema.returns]
    view = any(info is not None and not info.is_write for info in returns)
    return name, view or name in FREE


def moved(
    func: Any, name: str, args: Any, kwargs: Any, result: object
) -> tuple[list[Part], list[Part]]:
    """What an operator reads, and what it writes in place."""
    reads = parts_of((args[1:], kwargs))
    if name.endswith("_like") or name.startswith("new_"):  # takes the shape and type alone
        pass
    elif name in LOOKUPS:
        fetched = _fetched(name, args, result)
        reads += [part._replace(size=min(part.size, fetched)) for part in parts_of(args[:1])]
    elif name not in OVERWRITING:
        reads += parts_of(args[:1])
    written = [
        args[place]
        for place, argument in enumerate(func._schema.arguments[: len(args)])
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if name in WRITING_ROWS:
        rows = max((part.size for part in parts_of(args[1:])), default=0)
        return reads, [part._replace(size=min(part.size, rows)) for part in parts_of(written)]
    return reads, parts_of(written)


def _fetched(name: str, args: Any, result: object) -> int:
    """Bytes of the first argument that a lookup reads."""
    returned = sum(part.size for part in parts_of(result))
    tensors = [leaf for leaf in tree_leaves(args[1:]) if isinstance(leaf, torch.Tensor)]
    if name in ROWS and len(tensors) == 1 and tensors[0].dtype in (torch.int32, torch.int64):
        return int(returned * tensors[0].unique().numel() / max(tensors[0].numel(), 1))
    return returned


def parts_of(value: object) -> list[Part]:
    """What each tensor in the value shows of its storage."""
    found = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            try:
                storage = leaf.untyped_storage()
                size = min(_shown(leaf) * leaf.element_size(), storage.nbytes())
                found.append(
                    Part(storage._cdata, int(leaf.storage_offset()), size, storage.nbytes())
                )
            except (NotImplementedError, RuntimeError):  # sparse and wrapped tensors have none
                continue
    return found


def bytes_of(parts: Iterable[Part]) -> int:
    """Bytes in all parts. Views with the same beginning overlap, and no storage has more than its own bytes."""
    largest: dict[tuple[int, int], int] = {}
    capacity: dict[int, int] = {}
    for part in parts:
        place = (part.storage, part.offset)
        largest[place] = max(largest.get(place, 0), part.size)
        capacity[part.storage] = part.capacity
    total: Counter[int] = Counter()
    for (storage, _), size in largest.items():
        total[storage] += size
    return sum(min(size, capacity[storage]) for storage, size in total.items())


def _shown(tensor: torch.Tensor) -> int:
    """Elements in memory: an expanded dimension shows the same ones again."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else min(size, 1)
    return count
