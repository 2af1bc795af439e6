"""Counts the work of each module call in one run: operators, least bytes and floating-point operations.

The least bytes of a call are those of the tensors from outside that its operators read, each once, and of what it
returns or writes to tensors from outside. A lookup counts the rows that it fetches and not the table, so that an
embedding or an expert that is not used costs nothing.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from stark.evaluator.judge.problem.flops import flops_of
from stark.evaluator.judge.problem.roofline import arithmetic_of
from stark.regions.forms import Form, form_of_call

LOOKUPS = {"embedding", "index_select", "index", "gather", "take", "take_along_dim"}
"""Operators that read as many bytes of their first argument as they return."""

OVERWRITING = {"copy_", "fill_", "zero_", "index_copy_", "index_put_"}
"""Operators that write to their first argument without reading it."""

WRITING_ROWS = {"index_copy_", "index_put_"}
"""Operators that write as many bytes as their largest other argument has."""

TORCH = Path(torch.__file__).parent
INSIDE = tuple(
    str(path)
    for path in (
        *(TORCH / name for name in ("_ops.py", "functional.py", "nn/functional.py", "_tensor.py")),
        *(TORCH / name for name in ("utils", "_decomp", "_refs", "_prims", "_prims_common")),
        Path(__file__),
    )
)
"""Files in which an operator's own code, or this one, may be between a module and an operator."""

FREE = {"_unsafe_view", "detach", "alias", "lift_fresh", "empty", "empty_like", "empty_strided"}
"""Operators without work, besides those that return views."""

UNCOUNTED = {"_transformer_encoder_layer_fwd", "_native_multi_head_attention"}
"""Fused operators of PyTorch whose floating-point operations are unknown."""


class Part(NamedTuple):
    """What a tensor shows of its storage."""

    storage: int
    offset: int
    size: int
    """Bytes."""

    capacity: int
    """Bytes of the whole storage."""


class Place(NamedTuple):
    """Where the code calls an operator."""

    operator: str
    module: str
    """The path of the innermost module."""

    code: CodeType | None
    line: int


@dataclass
class Counted:
    """One call of a module with its work."""

    path: str
    module: nn.Module
    form: Form
    begun: int
    """Number of storages made before the call."""

    children: list[Counted] = field(default_factory=list)
    operators: set[Place] = field(default_factory=set)
    """Operators with work, each place in the code once: a loop over experts is as easy to replace as its body."""

    flops: Counter[str] = field(default_factory=Counter)
    """By arithmetic, as `fp32` or `bf16`."""

    read: set[Part] = field(default_factory=set)
    """Parts of tensors from outside that operators read."""

    written: set[Part] = field(default_factory=set)
    """Parts of tensors from outside that are changed, and returned tensors that the call made."""

    uncounted: set[str] = field(default_factory=set)
    """Operators whose floating-point operations are unknown."""

    @property
    def least_bytes(self) -> int:
        """Bytes that the call must move."""
        return _bytes_of(self.read) + _bytes_of(self.written)


class Counting(TorchDispatchMode):
    """Watches one run, as `regions.watching.Watcher`, while it sees every operator."""

    def __init__(self, kind: Literal["cuda", "cpu"]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kind = kind
        self.roots: list[Counted] = []
        self._open: list[Counted] = []
        self._made: dict[int, int] = {}
        """For each storage that an operator made, how many were made before it. A freed one's address can return."""

        self._count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch imports its compiler, for three seconds, to exempt this class from it."""
        return False

    def enter(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A call begins."""
        call = Counted(path, module, form_of_call(module, args, kwargs), self._count)
        (self._open[-1].children if self._open else self.roots).append(call)
        self._open.append(call)

    def leave(self, result: Any) -> None:
        """The innermost call ends."""
        call = self._open.pop()
        call.written.update(part for part in _parts(result) if self._is_inside(part, call))

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        operator = getattr(func, "_overloadpacket", func)
        if operator not in flop_registry:
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        result = func(*args, **kwargs)
        self._note(func, operator, args, kwargs, result)
        return result

    def _note(self, func: Any, operator: Any, args: Any, kwargs: Any, result: object) -> None:
        name, free = _nature(func)
        given = {part.storage for part in _parts((args, kwargs))}
        for part in _parts(result):
            if part.storage not in given:
                self._made[part.storage] = self._count
                self._count += 1
        if free or not self._open:
            return
        flops = self._flops(operator, args, kwargs, result)
        reads, writes = _moved(func, name, args, kwargs, result)
        place = Place(name, self._open[-1].path, *_line())
        for call in self._open:
            call.operators.add(place)
            call.flops.update(flops)
            unknown = operator in flop_registry and not flops
            if unknown or name in UNCOUNTED or func.namespace not in ("aten", "prims"):
                call.uncounted.add(name)
            call.read.update(part for part in reads if not self._is_inside(part, call))
            call.written.update(part for part in writes if not self._is_inside(part, call))

    def _is_inside(self, part: Part, call: Counted) -> bool:
        """Whether the call made the storage."""
        return self._made.get(part.storage, -1) >= call.begun

    def _flops(self, operator: Any, args: Any, kwargs: Any, result: object) -> dict[str, int]:
        count = flops_of(operator, args, kwargs, result)
        given = next((leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)), None)
        if count is None or given is None:
            return {}
        return {arithmetic_of("conv" in str(operator), given.dtype, self._kind): count}


def _line() -> tuple[CodeType | None, int]:
    """The line of a module, or of a function that it uses, in which an operator is called."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(INSIDE):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None, 0


@cache
def _nature(func: Any) -> tuple[str, bool]:
    """The operator's name, and whether it does no work: it returns a view, or memory without contents."""
    name = func._schema.name.rpartition("::")[2]
    returns = [each.alias_info for each in func._schema.returns]
    view = any(info is not None and not info.is_write for info in returns)
    return name, view or name in FREE


def _moved(
    func: Any, name: str, args: Any, kwargs: Any, result: object
) -> tuple[list[Part], list[Part]]:
    """What an operator reads, and what it writes in place."""
    fetched = sum(part.size for part in _parts(result))
    reads = _parts((args[1:], kwargs))
    if name in LOOKUPS:
        reads += [part._replace(size=min(part.size, fetched)) for part in _parts(args[:1])]
    elif name not in OVERWRITING:
        reads += _parts(args[:1])
    written = [
        args[place]
        for place, argument in enumerate(func._schema.arguments[: len(args)])
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if name in WRITING_ROWS:
        rows = max((part.size for part in _parts(args[1:])), default=0)
        return reads, [part._replace(size=min(part.size, rows)) for part in _parts(written)]
    return reads, _parts(written)


def _parts(value: object) -> list[Part]:
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


def _bytes_of(parts: set[Part]) -> int:
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
