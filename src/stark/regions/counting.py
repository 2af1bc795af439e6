"""Counts the work of each module call in one run: operators, least bytes and floating-point operations.

The least bytes of a call are those of the tensors from outside that its operators read, each once, and of what it
returns or writes to tensors from outside.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stark.evaluator.judge.problem.flops import flops_of, is_product
from stark.evaluator.judge.problem.roofline import arithmetic_of
from stark.evaluator.judge.problem.traffic import Part, bytes_of, moved, nature, parts_of
from stark.regions.forms import Form, form_of_call

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

UNCOUNTED = {"_transformer_encoder_layer_fwd", "_native_multi_head_attention"}
"""Fused operators of PyTorch whose floating-point operations are unknown."""


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
        return bytes_of(self.read) + bytes_of(self.written)


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
        call.written.update(part for part in parts_of(result) if self._is_inside(part, call))

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        operator = getattr(func, "_overloadpacket", func)
        if not is_product(operator):
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        result = func(*args, **kwargs)
        self._note(func, operator, args, kwargs, result)
        return result

    def _note(self, func: Any, operator: Any, args: Any, kwargs: Any, result: object) -> None:
        name, free = nature(func)
        given = {part.storage for part in parts_of((args, kwargs))}
        for part in parts_of(result):
            if part.storage not in given:
                self._made[part.storage] = self._count
                self._count += 1
        if free or not self._open:
            return
        flops = self._flops(operator, args, kwargs, result)
        reads, writes = moved(func, name, args, kwargs)
        place = Place(name, self._open[-1].path, *_line())
        for call in self._open:
            call.operators.add(place)
            call.flops.update(flops)
            unknown = is_product(operator) and not flops
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
