"""Which bytes an operator reads and writes: the least that a program moves follows from them.

A lookup counts each row that it fetches once, and not the table, so that an embedding, an expert or a page of a cache that
is not used costs nothing. A write of rows counts those rows. In several lookups or writes, a row counts once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

OVERWRITING_ROWS = {"index_copy_", "index_put_", "index_fill_", "scatter_"}
"""Operators that write to rows of their first argument without reading it."""

ROWS = {"embedding", "index_select", "index", "gather", "take"} | OVERWRITING_ROWS
ROWS |= {"index_add_", "index_reduce_", "scatter_add_", "scatter_reduce_"}
"""Operators that touch only those rows or elements of their first argument that the numbers in another name."""

MOST_ROWS = 1 << 20
"""If an operator names more rows, repeated ones count again: to find them takes longer than a tenth of a second."""

OVERWRITING = {"copy_", "fill_", "zero_"} | OVERWRITING_ROWS
"""Operators that write to their first argument without reading it."""

FREE = {"_unsafe_view", "detach", "alias", "lift_fresh", "empty", "empty_like", "empty_strided"}
"""Operators without work, besides those that return views."""


class Part(NamedTuple):
    """What an operator touches of a tensor."""

    storage: int
    begin: int
    end: int
    """The bytes of the storage between which the tensor lies."""

    size: int
    """Bytes."""

    rows: bytes = b""
    """The numbers of the rows, each once, in int64. Empty for a tensor as a whole."""

    numbering: tuple[int, ...] = ()
    """The bytes of a row, and the lengths and strides of the dimensions that the numbers count through."""


@cache
def nature(func: Any) -> tuple[str, bool]:
    """The operator's name, and whether it does no work: it returns a view, or memory without contents."""
    name = func._schema.name.rpartition("::")[2]
    returns = [each.alias_info for each in func._schema.returns]
    view = any(info is not None and not info.is_write for info in returns)
    return name, view or name in FREE


def moved(func: Any, name: str, args: Any, kwargs: Any) -> tuple[list[Part], list[Part]]:
    """What an operator reads, and what it writes in place."""
    reads, first = parts_of((args[1:], kwargs)), parts_of(args[:1])
    by_rows = name in ROWS and func.namespace == "aten"
    if by_rows:
        first = [_rows(part, args[0], _named(name, *args[:3])) for part in first]
    takes_shape_alone = name.endswith("_like") or name.startswith("new_")
    if not takes_shape_alone and name not in OVERWRITING:
        reads += first
    written = [
        args[place]
        for place, argument in enumerate(func._schema.arguments[: len(args)])
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return reads, first if by_rows and written else parts_of(written)


def _named(name: str, table: torch.Tensor, given: Any, index: Any = None) -> dict[int, Any]:
    """By dimension of the table, the numbers that name its rows. Those of several dimensions broadcast."""
    if name in ("index", "index_put_"):
        masks = (torch.bool, torch.uint8)
        each = (i.nonzero().unbind(1) if i is not None and i.dtype in masks else [i] for i in given)
        return {dim: i for dim, i in enumerate(chain.from_iterable(each)) if i is not None}
    if name == "embedding":
        return {0: given}
    if name == "take":
        return dict(enumerate(torch.unravel_index(given % max(table.numel(), 1), table.shape)))
    along = given % max(table.dim(), 1)
    found = {along: index}
    if name.startswith("index"):
        return found
    for dim, length in enumerate(index.shape):
        if dim == along:
            continue
        if index.stride(dim) == 0 and length == table.shape[dim]:  # whole rows, by repeated numbers
            found[along] = found[along].narrow(dim, 0, min(length, 1))
        else:
            found[dim] = torch.arange(length).view(-1, *[1] * (index.dim() - dim - 1))
    return dict(sorted(found.items()))


def _rows(part: Part, table: torch.Tensor, named: Mapping[int, torch.Tensor]) -> Part:
    """The part with only the rows that are named."""
    table = table if table.dim() else table[None]
    dims = [dim for dim in named if table.stride(dim)]  # an expanded dimension shows the same rows
    lengths = [table.shape[dim] for dim in dims]
    row = part.size // max(math.prod(lengths), 1)
    count = math.prod(torch.broadcast_shapes(*(each.shape for each in named.values())))
    if not 0 < count <= MOST_ROWS:
        return part._replace(size=min(part.size, count * row))
    numbers = torch.zeros(1, dtype=torch.int64, device="cpu")
    for dim, length in zip(dims, lengths, strict=True):
        numbers = numbers * length + named[dim].cpu().long() % length
    numbers = numbers.unique()
    return part._replace(
        size=numbers.numel() * row,
        rows=numbers.numpy().tobytes(),
        numbering=(row, *lengths, *(table.stride(dim) for dim in dims)),
    )


def parts_of(value: object) -> list[Part]:
    """What each tensor in the value shows of its storage."""
    found = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            try:
                storage, shown = leaf.untyped_storage()._cdata, _shown(leaf)
                begin = int(leaf.storage_offset()) * leaf.element_size()
                ends = zip(leaf.shape, leaf.stride(), strict=True)
                span = 1 + sum(max(length - 1, 0) * step for length, step in ends)
                size = min(shown, span) * leaf.element_size()
                found.append(Part(storage, begin, begin + span * leaf.element_size(), size))
            except (NotImplementedError, RuntimeError):  # sparse and wrapped tensors have none
                continue
    return found


def bytes_of(parts: Iterable[Part]) -> int:
    """Bytes in all parts, each row once.

    Of views with the same beginning, the largest counts: they overlap. Others add up, to no more than the bytes that they
    span together.
    """
    alike: dict[tuple[int, int, tuple[int, ...]], list[Part]] = defaultdict(list)
    for part in parts:
        alike[part.storage, part.begin, part.numbering].append(part)
    largest: dict[tuple[int, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for (storage, begin, numbering), group in alike.items():
        size = max(part.size for part in group)
        if numbering and len(group) > 1:
            rows = bytearray().join(part.rows for part in group)
            size = torch.frombuffer(rows, dtype=torch.int64).unique().numel() * numbering[0]
        end = max(part.end for part in group)
        known = largest[storage, begin]
        largest[storage, begin] = max(known[0], end), max(known[1], size)
    total, shown, start, reached = 0, 0, (0, 0), (0, 0)
    for place, (end, size) in sorted(largest.items()):
        if place >= reached:  # a new stretch
            total += min(shown, reached[1] - start[1])
            shown, start, reached = 0, place, place
        shown += size
        reached = max(reached, (place[0], end))
    return total + min(shown, reached[1] - start[1])


def _shown(tensor: torch.Tensor) -> int:
    """Elements in memory: an expanded dimension shows the same ones again."""
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size if stride else min(size, 1) for size, stride in axes)
