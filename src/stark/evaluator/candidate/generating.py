"""Has `torch.compile` generate code for a loaded module, and describes how to call that code.

The generated code is a function of one flat list of tensors. This file derives Python expressions
for that list and for forward's result, in terms of the module and forward's arguments. It does not
parse the generated code.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

INDEXED = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ParameterList)
"""Modules whose members are written as `[0]` instead of `.0`."""

PLAIN_VALUES = (type(None), bool, int, float, str)
"""Types of results that are written as literals."""


class NotGenerated(Exception):
    """No candidate can be generated for this module. The message is a clause with the reason."""


@dataclass(frozen=True)
class Generated:
    """A generated file and how to call it."""

    code: str
    """The file's text."""

    arguments: list[str]
    """The tensors that the function takes, as expressions over `self` and forward's parameters."""

    outputs: str
    """The name that `returned` uses for the generated function's result."""

    returned: str
    """Forward's result, as an expression over `outputs`, `self` and forward's parameters."""


@dataclass
class _Seen:
    """What the compiler received and produced during one call of the module."""

    graphs: int = 0
    """Number of graphs that the compiler split forward into."""

    codes: list[str] = field(default_factory=list)
    """Generated files."""

    given: list[object] = field(default_factory=list)
    """Arguments of the generated function."""

    made: list[object] = field(default_factory=list)
    """Results of the generated function."""

    constants: int = 0
    """Number of tensors that a generated file needs but does not contain."""


def generate(model: torch.nn.Module, inputs: list[Any]) -> Generated:
    """Compile a module for these inputs as `torch.compile` does.

    Raises NotGenerated, and whatever the compiler raises.
    """
    # Imported late, because it must see this child's environment.
    from torch._functorch import config as functorch

    bound = inspect.signature(model.forward).bind(*inputs)
    outputs = "outputs"
    while outputs in bound.arguments:
        outputs += "_"
    seen = _Seen()
    # A cache hit would skip the generation.
    with functorch.patch(enable_autograd_cache=False):
        returned = torch.compile(model, backend=_recording_backend(seen))(*inputs)
    if seen.graphs > 1:
        raise NotGenerated(
            f"the compiler splits forward into {seen.graphs} graphs, and a candidate needs a single graph"
        )
    if len(seen.codes) != 1:
        raise NotGenerated("forward contains nothing to compile")
    if seen.constants:
        raise NotGenerated(
            "forward creates constant tensors, which the generated file does not contain"
        )
    known = _Names(_named(model, bound.arguments))
    arguments = [known.of(value, "the generated code needs") for value in seen.given]
    results = _Names((f"{outputs}[{index}]", value) for index, value in enumerate(seen.made))
    returned_as = _expression(returned, _Names([*results.entries, *known.entries]))
    return Generated(seen.codes[0], arguments, outputs, returned_as)


def _recording_backend(seen: _Seen) -> Any:
    """Inductor as a backend that records the generated code, its arguments and its results."""
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
        if seen.graphs > 1:  # the result is refused anyway, so do not compile any more
            return graph.forward
        return compile_fx(graph, examples, inner_compile=inner)

    return backend


class _Names:
    """Finds a tensor's expression by address, dtype, shape and strides. If several entries match, the first counts."""

    def __init__(self, entries: Iterable[tuple[str, object]]) -> None:
        self.entries = list(entries)
        self._found: dict[tuple[object, ...], str] = {}
        for name, value in self.entries:
            if isinstance(value, torch.Tensor):
                self._found.setdefault(_place(value), name)

    def of(self, value: object, what: str) -> str:
        """The tensor's expression. Raises NotGenerated if there is none; the message begins with `what`."""
        if not isinstance(value, torch.Tensor):
            raise NotGenerated(f"{what} a {type(value).__name__}, which is not a tensor")
        name = self._found.get(_place(value))
        if name is None:
            raise NotGenerated(f"{what} a tensor that is not a parameter, buffer, input or output")
        return name


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())


def _named(model: torch.nn.Module, arguments: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Every value that forward can reach, with its expression. Forward's arguments come first."""
    for argument, value in arguments.items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            yield argument + pytree.keystr(path), leaf
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        yield _attribute(model, name), tensor
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute.startswith("_"):  # holds the parameters, buffers and modules named above
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


def _expression(value: object, names: _Names) -> str:
    """Forward's result as an expression."""
    if isinstance(value, torch.Tensor):
        return names.of(value, "forward returns")
    if isinstance(value, PLAIN_VALUES):
        return repr(value)
    if type(value) is tuple:
        items = [_expression(item, names) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if type(value) is list:
        return f"[{', '.join(_expression(item, names) for item in value)}]"
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {_expression(item, names)}' for key, item in value.items())}}}"
    raise NotGenerated(f"forward returns a {type(value).__name__}")
