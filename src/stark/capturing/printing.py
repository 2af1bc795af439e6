"""Prints an exported graph as code that calls each operator by its full name, which is exact for every overload."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch

from stark.capturing.cannot import CannotCapture
from stark.capturing.literals import literal, nested

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
