"""Captures a module by its exported graph, where its source does not do: one flat forward, with the state's own names."""

from __future__ import annotations

import operator
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from stark.capturing.calls.cases import Binding
from stark.capturing.calls.observing import Observed
from stark.capturing.calls.recording import Example, Form
from stark.capturing.calls.repeating import unchanged
from stark.capturing.calls.values import copied
from stark.capturing.cannot import CannotCapture, users_code
from stark.capturing.code.attributes import (
    DEEPEST,
    OF_NN_MODULE,
    constant_buffers,
    has_text,
    is_describable,
)
from stark.capturing.code.definitions import IMPORTED
from stark.capturing.code.globals import attributes_of, globals_of
from stark.capturing.code.state import (
    HOLDER,
    assigned,
    buffer_text,
    finishing,
    holders,
    read,
    registered,
)
from stark.capturing.described import code, described, hidden
from stark.capturing.document import Captured
from stark.capturing.expressions.drawing import parameter
from stark.capturing.expressions.literals import literal, nested
from stark.capturing.expressions.stored import exact
from stark.capturing.forms import tensors_in

HELD = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")


def exported(module: nn.Module, example: Example, grad: bool) -> ExportedProgram:
    """The module as torch.export traces it, without strict mode. Raises CannotCapture."""
    with (
        users_code("torch.export fails (REASON)"),
        unchanged(module),
        torch.inference_mode(False),
        torch.set_grad_enabled(grad),
    ):
        return torch.export.export(module, *example, strict=False)


def by_graph(
    module: nn.Module, binding: Binding, form: Form, observed: Observed, reason: str
) -> Captured:
    """Write the exported graph as PyTorch code.

    Raises CannotCapture if the module cannot be exported, or the graph has parts that are no operators.
    """
    assert form.example is not None
    each_once = pytree.tree_map_only(torch.Tensor, copied, form.example)
    example: Example = each_once  # no tensor occurs twice
    program = exported(module, example, form.grad)
    init = ["super().__init__()", *_state(module, program)]
    init += finishing(module)
    lines = _forward(program, binding, example)
    text = "\n".join(
        [
            "class Model(nn.Module):",
            "    def __init__(self):",
            *(f"        {line}" for line in init),
            "",
            f"    def forward(self, {', '.join(binding.arguments)}):",
            *(f"        {line}" for line in lines),
        ]
    )
    return Captured(
        definitions={"aten": "aten = torch.ops.aten", "Holder": HOLDER},
        classes={"Model": text},
        imports={"torch": "import torch"},
        notes=[
            f"By torch.export, for the recorded shapes, because its source cannot be copied: {reason}."
        ],
        attributes=_attributes(module, attributes_of(observed)),
        code=_code(module) | globals_of(observed),
        packages={type(module).__module__.partition(".")[0]},
    )


def _attributes(module: nn.Module, read: set[str]) -> dict[str, dict[str, str]]:
    """All numbers, functions, tensors and the like of every submodule: the graph may depend on each.

    No code is in the file that shows which texts matter, so none can be read there. Raises CannotCapture if an
    attribute of a name in `read` cannot be described.
    """
    found = {}
    for path, each in module.named_modules():
        facts = Facts(each, read)
        for name, value in vars(each).items():
            if name not in OF_NN_MODULE:
                facts.add(name, value)
        if path:
            facts.add("__class__", type(each))
        if plain := constant_buffers(each) | facts.found:
            found[path] = dict(sorted(plain.items()))
    return found


DYNAMIC = {"vars", "__dict__", "asdict"}
"""Names in code that may read every attribute."""


class Facts:
    """The attributes of one module, by dotted name."""

    def __init__(self, module: nn.Module, read: set[str]) -> None:
        self._module, self._read = module, read
        self.found: dict[str, str] = {}

    def add(self, name: str, value: Any, depth: int = 0) -> None:
        """An attribute, with the attributes of an object. Raises CannotCapture if code reads it and it has no description."""
        own = isinstance(value, types.MethodType) and value.__self__ is self._module
        if is_describable(value.__func__ if own else value):
            self.found[name] = hidden(value) if has_text(value) else described(value)
            return
        if isinstance(value, nn.Module):
            return
        inside = not callable(value) and not isinstance(value, dict) and hasattr(value, "__dict__")
        is_read = bool(self._read & DYNAMIC) or self._read.issuperset(name.split("."))
        if inside and is_read and depth <= DEEPEST:
            self.found[f"{name}.__class__"] = described(type(value))
            for inner, each in vars(value).items():
                if not inner.startswith("__"):
                    self.add(f"{name}.{inner}", each, depth + 1)
        elif is_read:
            kind = type(self._module).__name__
            raise CannotCapture(
                f"{kind}.{name} is a {type(value).__name__} that cannot be compared"
            )


def _code(module: nn.Module) -> dict[str, str]:
    """The digests of the source of all classes that are not torch's."""
    kinds = {kind for each in module.modules() for kind in type(each).__mro__[:-1]}
    if local := [kind.__qualname__ for kind in kinds if "<" in kind.__qualname__]:
        raise CannotCapture(f"the class {min(local)} was made in a function")
    own = {f"{k.__module__}:{k.__qualname__}": k for k in kinds}
    return {
        n: code(k)
        for n, k in sorted(own.items())
        if n.partition(".")[0].partition(":")[0] not in IMPORTED
    }


def _state(module: nn.Module, program: ExportedProgram) -> Iterator[str]:
    """Statements that make the module's parameters and buffers, and the constants of the graph."""
    state = module.state_dict(keep_vars=True)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = dict(module.named_buffers(remove_duplicate=False))
    if odd := set(state) - set(parameters) - set(buffers):
        raise CannotCapture(f"its state has {min(odd)}, which is not a tensor")
    constants = {
        spec.target: program.constants[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.kind.name in HELD
        and spec.target in program.constants
        and spec.target not in buffers
    }
    used = {spec.target for spec in program.graph_signature.input_specs}
    names = [*parameters, *(n for n in buffers if n in state or n in used), *constants]
    yield from holders(names)
    for name in names:
        if name in parameters:
            yield assigned(name, f"nn.Parameter({parameter(parameters[name])})")
        elif name in buffers:
            yield registered(name, buffer_text(buffers[name], name in state), name in state)
        else:
            yield registered(name, exact(constants[name]), False)


def _forward(program: ExportedProgram, binding: Binding, example: Example) -> list[str]:
    """The statements of forward."""
    signature = program.graph_signature
    given_by_name = zip(binding.arguments, binding.values(example), strict=True)
    paths = {
        id(tensor): path
        for name, value in given_by_name
        for path, tensor in tensors_in(value, name)
    }
    leaves = pytree.tree_leaves(example)
    given = [spec for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    if len(given) != len(leaves):
        raise CannotCapture("the export has other inputs than forward")
    names = {
        s.arg.name: read(s.target)
        for s in signature.input_specs
        if s.kind.name in HELD and s.target
    }
    lines = []
    for spec, leaf in zip(given, leaves, strict=True):
        if isinstance(leaf, torch.Tensor) and spec.arg.name != paths[id(leaf)]:
            lines.append(f"{spec.arg.name} = {paths[id(leaf)]}")
    device = next((paths[id(leaf)] for leaf in leaves if isinstance(leaf, torch.Tensor)), None)
    printer = Printer(names, device)
    lines += printer.statements(program.graph)
    outputs = next(node for node in program.graph.nodes if node.op == "output").args[0]
    returned = []
    for output, spec in zip(outputs, signature.output_specs, strict=True):
        text = printer.reference(output)
        if spec.kind.name == "USER_OUTPUT":
            returned.append(text)
        elif spec.kind.name == "BUFFER_MUTATION":
            lines.append(f"{read(spec.target)}.copy_({text})")
        elif spec.kind.name == "USER_INPUT_MUTATION":
            lines.append(f"{spec.target}.copy_({text})")
        else:
            raise CannotCapture(f"the graph has a {spec.kind.name}")
    structure = program.call_spec.out_spec
    assert structure is not None
    return [*lines, f"return {_nested(pytree.tree_unflatten(returned, structure))}"]


def _nested(value: Any) -> str:
    """The returned expression, from nested containers of texts."""
    if isinstance(value, str):
        return value
    if type(value) is dict:
        return f"{{{', '.join(f'{literal(k)}: {_nested(v)}' for k, v in value.items())}}}"
    if value is None:
        return "None"
    if (text := nested(value, _nested)) is not None:
        return text
    raise CannotCapture(f"it returns a {type(value).__name__}; return a tuple, a list or a dict")


DROPPED = {
    "aten._assert_tensor_metadata.default",
    "aten._assert_async.msg",
    "aten._assert_scalar.default",
}


class Printer:
    """Prints one graph."""

    def __init__(self, names: Mapping[str, str], device: str | None) -> None:
        self._names = names
        """Expressions of parameters and buffers by the name of their node."""

        self._device = device
        """The expression of a tensor whose device new tensors get."""

    def statements(self, graph: torch.fx.Graph) -> list[str]:
        """The statements, with the path of the module that they come from as comments."""
        lines, last = [], ""
        for node in graph.nodes:
            if node.op in ("placeholder", "output") or str(node.target) in DROPPED:
                continue
            if node.op != "call_function":
                raise CannotCapture(
                    f"its graph has a {node.op} {node.name}, which is not an operator"
                )
            stack = node.meta.get("nn_module_stack") or {}
            path = next(iter(reversed(stack.values())))[0] if stack else ""
            if path and path != last:
                lines.append(f"# {path.removeprefix('L__self___')}")
                last = path
            lines.append(f"{node.name} = {self._expression(node)}")
        return lines

    def reference(self, value: Any) -> str:
        """An argument: the name of a node, or a literal."""
        match value:
            case torch.fx.Node():
                return self._names.get(value.name, value.name)
            case torch.device():
                return f"{self._device}.device" if self._device else literal(value)
            case list():  # of a class of its own
                return nested(list(value), self.reference) or ""
        return nested(value, self.reference) or literal(value)

    def _expression(self, node: torch.fx.Node) -> str:
        target = node.target
        if target is operator.getitem:
            return f"{self.reference(node.args[0])}[{node.args[1]}]"
        if not isinstance(target, torch._ops.OpOverload):
            raise CannotCapture(f"its graph has {target}, which is not an operator")
        if target.namespace != "aten":
            raise CannotCapture(f"its graph calls {target}, which is not an operator of torch")
        keywords = (f"{k}={self.reference(v)}" for k, v in node.kwargs.items() if k != "pin_memory")
        return f"{target}({', '.join([*map(self.reference, node.args), *keywords])})"
