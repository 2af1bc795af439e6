"""What PyTorch's compiler makes of a loaded module: its generated file, and how that hangs together with the module.

The generated code is a function of one flat list of tensors. Here it is found out, in Python expressions over the
module and the arguments of its forward, what that list is made of and what forward's result is made of.
Knows nothing of how generated files look.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

INDEXED = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ParameterList)
PLAIN_VALUES = (type(None), bool, int, float, str)


class NotGenerated(Exception):
    """The compiler makes nothing of this module that could stand alone; says why, as the end of a sentence."""


@dataclass(frozen=True)
class Generated:
    """A generated file and its use."""

    code: str
    arguments: list[str]
    """What its function is called with, as expressions over `self` and the parameters of forward."""

    outputs: str
    """The name that `returned` has for what that function returns."""

    returned: str
    """What forward returns, as an expression that may use all of these."""


@dataclass
class _Seen:
    """What passed through the compiler while the module was called once."""

    graphs: int = 0
    codes: list[str] = field(default_factory=list)
    given: list[object] = field(default_factory=list)
    made: list[object] = field(default_factory=list)
    constants: int = 0
    """Tensors that a generated file needs and does not hold."""


def generate(model: torch.nn.Module, inputs: list[Any]) -> Generated:
    """Compile a module for these inputs, as `torch.compile` does. Raises NotGenerated, and what the compiler raises."""
    from torch._functorch import (
        config as functorch,  # late: it must see the environment of this child
    )

    bound = inspect.signature(model.forward).bind(*inputs)
    outputs = "outputs"
    while outputs in bound.arguments:
        outputs += "_"
    seen = _Seen()
    with functorch.patch(enable_autograd_cache=False):  # what is found there is not generated
        returned = torch.compile(model, backend=_observed(seen))(*inputs)
    if seen.graphs > 1:
        raise NotGenerated(
            f"it makes {seen.graphs} graphs of forward, and only one graph is one function"
        )
    if len(seen.codes) != 1:
        raise NotGenerated("it finds nothing in forward to compile")
    if seen.constants:
        raise NotGenerated("forward makes tensors of constants, which its code does not hold")
    known = _Names(_named(model, bound.arguments))
    arguments = [known.of(value, "its code needs") for value in seen.given]
    results = _Names((f"{outputs}[{index}]", value) for index, value in enumerate(seen.made))
    returned_as = _written(returned, _Names([*results.entries, *known.entries]))
    return Generated(seen.codes[0], arguments, outputs, returned_as)


def _observed(seen: _Seen) -> Any:
    """Inductor as a backend that writes down what it generates, and what that is called with and returns."""
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def inner(graph: Any, examples: Any, **options: Any) -> Any:
        compiled: Any = compile_fx_inner(graph, examples, **options)
        seen.codes.append(compiled.source_code)
        seen.constants += len(compiled.constants or {})
        run = compiled.current_callable

        def observed(arguments: list[Any]) -> Any:
            seen.given = list(arguments)
            seen.made = list(run(arguments))
            return seen.made

        compiled.current_callable = observed
        return compiled

    def backend(graph: Any, examples: Any) -> Any:
        seen.graphs += 1
        if seen.graphs > 1:  # it is of no use any more, and is not worth compiling
            return graph.forward
        return compile_fx(graph, examples, inner_compile=inner)

    return backend


class _Names:
    """Expressions of tensors, found by where a tensor lies and how; of several the first."""

    def __init__(self, entries: Iterable[tuple[str, object]]) -> None:
        self.entries = list(entries)
        self._found: dict[tuple[object, ...], str] = {}
        for name, value in self.entries:
            if isinstance(value, torch.Tensor):
                self._found.setdefault(_place(value), name)

    def of(self, value: object, what: str) -> str:
        """The expression of a tensor. Raises NotGenerated where there is none; `what` begins the reason."""
        if not isinstance(value, torch.Tensor):
            raise NotGenerated(f"{what} a {type(value).__name__}, and is for one shape only")
        name = self._found.get(_place(value))
        if name is None:
            raise NotGenerated(
                f"{what} a tensor that is no parameter, no buffer, no input and no output"
            )
        return name


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())


def _named(model: torch.nn.Module, arguments: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Everything that forward can reach by name: its arguments, then the module's own tensors."""
    for argument, value in arguments.items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            yield argument + pytree.keystr(path), leaf
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        yield _attribute(model, name), tensor
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute.startswith("_"):  # a module's own bookkeeping, which has been named
                continue
            owner = _attribute(model, f"{name}.{attribute}".lstrip("."))
            for path, leaf in pytree.tree_flatten_with_path(value)[0]:
                yield owner + pytree.keystr(path), leaf


def _attribute(model: torch.nn.Module, name: str) -> str:
    """A dotted name as an expression over `self`."""
    written, owner = "self", model
    for part in name.split("."):
        if part.isdigit() and isinstance(owner, INDEXED):
            written += f"[{part}]"
        elif part.isidentifier():
            written += f".{part}"
        else:
            written = f"getattr({written}, {part!r})"
        owner = getattr(owner, part)
    return written


def _written(value: object, names: _Names) -> str:
    """What forward returned as an expression."""
    if isinstance(value, torch.Tensor):
        return names.of(value, "forward returns")
    if isinstance(value, PLAIN_VALUES):
        return repr(value)
    if type(value) is tuple:
        items = [_written(item, names) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if type(value) is list:
        return f"[{', '.join(_written(item, names) for item in value)}]"
    if type(value) is dict:
        return (
            f"{{{', '.join(f'{key!r}: {_written(item, names)}' for key, item in value.items())}}}"
        )
    raise NotGenerated(f"forward returns a {type(value).__name__}")
