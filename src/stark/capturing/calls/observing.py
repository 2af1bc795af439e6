"""Watches the recorded calls: constant arguments of submodules, lines that run, operators, and values that Python reads."""

from __future__ import annotations

import enum
import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from stark.capturing.calls.recording import Form
from stark.capturing.calls.repeating import call

PRESENT = object()
"""Stands for an argument that is never None and not constant."""

OWN_NAMESPACES = {
    "aten",
    "prim",
    "prims",
    "profiler",
    "inductor",
    "mkldnn",
    "quantized",
    "higher_order",
}
"""Namespaces of operators that belong to torch."""

READS_VALUES = {
    "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::nonzero", "aten::unique_dim",
    "aten::_unique2", "aten::unique_consecutive", "aten::masked_select", "aten::bincount", "aten::nonzero_numpy",
}  # fmt: skip
"""Operators through which Python code can depend on the values of tensors, or shapes on values."""

READING_METHODS = {
    "tolist",
    "numpy",
    "__array__",
    "item",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__contains__",
}

TORCH = str(Path(torch.__file__).parent)
TORCH_MODULES = str(Path(nn.__file__).parent / "modules")


@dataclass
class Observed:
    """What all recorded calls have in common."""

    constants: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By id of a submodule: arguments of its forward that are always the same constant, or always `PRESENT`."""

    lines: dict[str, set[int]] = field(default_factory=dict)
    """Lines that ran, by file."""

    functions: dict[CodeType, dict[str, Any]] = field(default_factory=dict)
    """The functions that ran, and the globals of each."""

    operators: set[str] = field(default_factory=set)
    """Operators outside torch."""

    reads_values: bool = False
    """Whether control flow may depend on the values of tensors."""


def observe(module: nn.Module, forms: Sequence[Form]) -> Observed:
    """Repeat every form twice, once for lines and arguments, once for operators. Raises what forward raises."""
    seen = Observed()
    for form in forms:
        assert form.example is not None
        with _noting_arguments(module, seen), _noting_lines(seen):
            call(module, form.example, form.grad)
        call(module, form.example, form.grad, _noting_operators(seen))
    return seen


@contextmanager
def _noting_arguments(module: nn.Module, seen: Observed) -> Iterator[None]:
    """Note the constant arguments of each submodule's forward."""
    with ExitStack() as hooks:
        for each in module.modules():
            hook = each.register_forward_pre_hook(
                _argument_hook(each, seen), with_kwargs=True, prepend=True
            )
            hooks.callback(hook.remove)
        yield


def _argument_hook(module: nn.Module, seen: Observed) -> Callable[..., None]:
    signature = inspect.signature(module.forward)
    variable = {
        p.name for p in signature.parameters.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }

    def note(module: nn.Module, args: Any, kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        now = {n: _as_constant(v) for n, v in bound.arguments.items() if n not in variable}
        known = seen.constants.setdefault(id(module), now)
        for name in list(known):
            if name in now and _same(known[name], now[name]):
                continue
            if name in now and known[name] is not None and now[name] is not None:
                known[name] = PRESENT
            else:
                del known[name]

    return note


def _as_constant(value: Any) -> Any:
    """Values that decide branches, rather than numbers, which may follow from shapes."""
    decides = value is None or isinstance(value, (bool, str, torch.dtype, enum.Enum))
    return value if decides else PRESENT


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


@contextmanager
def _noting_lines(seen: Observed) -> Iterator[None]:
    """Note the lines that run, but for torch's own outside of `torch.nn.modules`."""

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if file.startswith("<") or (file.startswith(TORCH) and not file.startswith(TORCH_MODULES)):
            return None
        if not _is_importing(frame):
            seen.functions[frame.f_code] = frame.f_globals
        lines = seen.lines.setdefault(file, set())
        add = lines.add

        def inside(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                add(frame.f_lineno)
            return inside

        return inside

    known, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # finalizers of other objects are no part of the module
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(known)
        if collects:
            gc.enable()


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a function runs because something, often torch, imports a module for the first time."""
    while frame is not None and frame.f_code is not call.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def _noting_operators(seen: Observed) -> Iterator[None]:
    """Note foreign operators, and reads of values."""
    with _Functions(seen), _Operators(seen):
        yield


class _Operators(TorchDispatchMode):
    """Notes operators from outside torch, and those that read values."""

    def __init__(self, seen: Observed) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name.partition("::")[0] not in OWN_NAMESPACES:
            self._seen.operators.add(name)
        if name in READS_VALUES or (name == "aten::index" and _by_mask(args)):
            self._seen.reads_values = True
        if name == "aten::repeat_interleave" and len(args) == 1:
            self._seen.reads_values = True
        return func(*args, **(kwargs or {}))


def _by_mask(args: Any) -> bool:
    """Whether a tensor is indexed by a mask, so that the result's shape depends on values."""
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])


class _Functions(TorchFunctionMode):
    """Notes methods that read values without an operator."""

    def __init__(self, seen: Observed) -> None:
        super().__init__()
        self._seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in READING_METHODS:
            self._seen.reads_values = True
        return func(*args, **(kwargs or {}))
