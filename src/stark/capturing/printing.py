"""Prints an exported graph as PyTorch code: operators by their usual names where these mean the same."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from stark.capturing.cannot import CannotCapture
from stark.capturing.literals import literal, nested

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "matmul": "@", "bitwise_and": "&", "bitwise_or": "|",
    "lt": "<", "gt": ">", "ge": ">=", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
INFIX_OVERLOADS = {"Tensor", "Scalar", "Tensor_Scalar", "default"}

METHODS = set(
    "view reshape transpose permute expand contiguous unsqueeze squeeze chunk split mean sum repeat flatten unflatten t "
    "masked_fill clone unbind roll flip amax amin softmax cos sin neg exp rsqrt sqrt tanh sigmoid index_select gather "
    "scatter cumsum argmax topk select abs log clamp square reciprocal add_ mul_ div_ sub_ copy_ masked_fill_ index_add_ "
    "detach narrow movedim type_as view_as expand_as".split()
)
FUNCTIONS = set(
    "linear silu gelu relu layer_norm conv1d conv2d conv3d softplus scaled_dot_product_attention rms_norm pad hardswish "
    "hardsigmoid leaky_relu elu group_norm dropout max_pool2d avg_pool2d adaptive_avg_pool2d mish log_softmax".split()
)
MOST_ARGUMENTS = {"layer_norm": 5, "group_norm": 5}
"""Parameters of the function in torch.nn.functional; the operator has more, without effect."""

DROPPED = {
    "aten._assert_tensor_metadata.default",
    "aten._assert_async.msg",
    "aten._assert_scalar.default",
}
END = 9223372036854775807


class Printer:
    """Prints one graph."""

    def __init__(self, names: Mapping[str, str], device: str | None, plain: bool) -> None:
        self._names = names
        """Expressions of parameters and buffers by the name of their node."""

        self._device = device
        """The expression of a tensor whose device new tensors get."""

        self._plain = plain

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
        space, name = target._schema.name.split("::")
        if space != "aten":
            raise CannotCapture(f"its graph calls {target}, which is not an operator of torch")
        pretty = None if self._plain else self._pretty(name, str(target).rpartition(".")[2], node)
        return pretty or f"torch.ops.{target}({self._arguments(node)})"

    def _arguments(self, node: torch.fx.Node, first: int = 0) -> str:
        keywords = (f"{k}={self.reference(v)}" for k, v in node.kwargs.items() if k != "pin_memory")
        return ", ".join([*map(self.reference, node.args[first:]), *keywords])

    def _pretty(self, name: str, overload: str, node: torch.fx.Node) -> str | None:
        args, first = node.args, node.args[0] if node.args else None
        if name in INFIX and overload in INFIX_OVERLOADS and len(args) == 2 and not node.kwargs:
            return f"{self._atom(args[0])} {INFIX[name]} {self._atom(args[1])}"
        if name == "to" and overload == "dtype" and len(args) == 2:
            return f"{self.reference(first)}.to({self.reference(args[1])})"
        if name == "slice":
            return self._slice(node)
        if name == "embedding" and len(args) == 2:
            return f"F.embedding({self.reference(args[1])}, {self.reference(first)})"
        if name == "batch_norm":
            x, weight, bias, mean, variance, *rest = map(self.reference, args[:8])
            return f"F.batch_norm({', '.join([x, mean, variance, weight, bias, *rest])})"
        if name in METHODS and isinstance(first, torch.fx.Node):
            return f"{self.reference(first)}.{name}({self._arguments(node, 1)})"
        if name in FUNCTIONS and hasattr(F, name):
            kept = args[: MOST_ARGUMENTS.get(name, len(args))]
            texts = [
                *map(self.reference, kept),
                *(f"{k}={self.reference(v)}" for k, v in node.kwargs.items()),
            ]
            return f"F.{name}({', '.join(texts)})"
        if hasattr(torch, name) and overload in (
            "default",
            "dim",
            "int",
            "Tensor",
            "self",
            "start",
            "start_step",
        ):
            return f"torch.{name}({self._arguments(node)})"
        return None

    def _atom(self, value: Any) -> str:
        text = self.reference(value)
        return f"({text})" if text.startswith("-") else text

    def _slice(self, node: torch.fx.Node) -> str | None:
        given: list[Any] = [*node.args, *(0, None, None, 1)[len(node.args) - 1 :]]
        value, dim, start, end, step = given
        if not isinstance(dim, int) or dim < 0 or dim > 3 or node.kwargs:
            return None
        begin = "" if start in (0, None) else self.reference(start)
        stop = "" if end in (None, END) else self.reference(end)
        part = f"{begin}:{stop}" if step == 1 else f"{begin}:{stop}:{self.reference(step)}"
        return f"{self.reference(value)}[{':, ' * dim}{part}]"
