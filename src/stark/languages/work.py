"""What a problem's program does, as far as choosing techniques needs it: its operators, and what binds it.

Operators are read off the source's syntax, by the names that PyTorch gives them. So a count is about
right and no more; how often a loop runs is not known. Nothing is run here.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from stark.core.problem import Problem
from stark.core.python import parse_python
from stark.core.reference import Reference

Operator = Literal["matmul", "conv", "softmax", "norm", "reduction"]
Bound = Literal["memory", "compute", "launch"]

CPU_CALL_MS = 0.005
"""What one operator costs on a CPU however small its tensors are: the call (0.9 us measured), memory for
its result, and the start of its threads, which takes several us where there are many."""

LOOP_STEPS = 8
"""An operator inside a loop counts as so many: a guess, since nothing is run."""

SHORT_PROGRAM = 3
"""After more steps than these, the shape of the output says little about the products before."""

OUTPUT_TILE = 128 * 128
"""Elements of a product's output that one block usually computes."""


@dataclass(frozen=True)
class Work:
    """What is known of a problem on a device before any candidate."""

    device_kind: Literal["cpu", "cuda"]
    architecture: str
    """`sm_90` for a GPU; the instruction set for a CPU."""

    bound: Bound
    """What takes longest at best: the bytes, the operations, or the calls of operators as they are written."""

    operators: frozenset[Operator]
    steps: int
    """About how many operators the program calls, elementwise ones included."""

    few_outputs: bool
    """Whether the output has fewer tiles than the device has processors, right after the heavy work."""


def work_of(problem: Problem, reference: Reference) -> Work:
    """The facts of a problem and its reference that techniques are chosen by."""
    device, roofline = reference.device, reference.roofline
    calls = operators_in(problem.source)
    call_ms = device.launch_ms or CPU_CALL_MS
    elements = sum(math.prod(spec.shape) for spec in reference.outputs)
    return Work(
        device_kind=device.kind,
        architecture=device.architecture,
        bound="launch" if roofline.floor_ms < max(calls.steps, 1) * call_ms else roofline.bound,
        operators=calls.operators,
        steps=calls.steps,
        few_outputs=elements < device.processors * OUTPUT_TILE and calls.steps <= SHORT_PROGRAM,
    )


class Calls(NamedTuple):
    """What operators a source calls."""

    operators: frozenset[Operator]
    steps: int


@lru_cache(maxsize=512)
def operators_in(source: str) -> Calls:
    """The operators of a problem's model; a text that does not parse has none."""
    try:
        tree = parse_python(source)
    except SyntaxError:
        return Calls(frozenset(), 0)
    operators: set[Operator] = set()
    steps = 0
    for step in _steps(tree):
        steps += step.times
        operators |= {kind for kind, names in _NAMES.items() if step.name in names}
    return Calls(frozenset(operators), steps)


class _Step(NamedTuple):
    name: str
    times: int


def _steps(tree: ast.Module) -> Iterator[_Step]:
    """The operators of a file, each with how often it is called. A long sum may nest deeper than a function can."""
    waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
    while waiting:
        node, times = waiting.pop()
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            continue
        name = _operator(node)
        if name is not None:
            yield _Step(name, times)
        inside = LOOP_STEPS if isinstance(node, _LOOPS) else times
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]


_LOOPS = ast.For | ast.While | ast.ListComp | ast.GeneratorExp

_ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Pow


def _operator(node: ast.AST) -> str | None:
    """The operator that this node calls, or constructs as a module, as one name for all its forms."""
    match node:
        case ast.BinOp(op=ast.MatMult()):
            return "matmul"
        case ast.BinOp(op=op) if isinstance(op, _ARITHMETIC) and not _is_number(node):
            return "arithmetic"
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"))):
            return None  # a module, which was counted where it was constructed
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            plain = re.sub(r"_|\d+d$", "", name.lower())
            return plain if plain in _KNOWN else None
    return None


def _is_number(node: ast.AST) -> bool:
    """Whether nothing but literals and plain names stands in this arithmetic, as in a file's constants."""
    return all(
        isinstance(part, ast.BinOp | ast.Constant | ast.operator)
        or (isinstance(part, ast.Name) and part.id.isupper())
        or isinstance(part, ast.expr_context)
        for part in ast.walk(node)
    )


_NAMES: dict[Operator, frozenset[str]] = {
    "matmul": frozenset(
        "matmul mm bmm mv addmm addmv baddbmm einsum tensordot linear bilinear scaleddotproductattention"
        " multiheadattention transformerencoderlayer transformerdecoderlayer lstm gru rnn lstmcell grucell".split()
    ),
    "conv": frozenset("conv convtranspose".split()),
    "softmax": frozenset(
        "softmax logsoftmax softmin logsumexp crossentropy crossentropyloss"
        " scaleddotproductattention multiheadattention".split()
    ),
    "norm": frozenset(
        "layernorm rmsnorm batchnorm groupnorm instancenorm normalize transformerencoderlayer"
        " transformerdecoderlayer".split()
    ),
    "reduction": frozenset(
        "sum mean prod max min amax amin argmax argmin var std norm nansum countnonzero kldiv kldivloss"
        " mseloss l1loss smoothl1loss hingeembeddingloss tripletmarginloss cosinesimilarity maxpool avgpool"
        " adaptiveavgpool adaptivemaxpool logsumexp".split()
    ),
}

_ELEMENTWISE = frozenset(
    "relu relu6 leakyrelu prelu elu selu celu gelu silu mish hardswish hardsigmoid hardtanh sigmoid tanh softplus"
    " softsign exp log log2 sqrt rsqrt pow square abs clamp clip erf where maskedfill add sub mul div sin cos sign"
    " floor round lerp cumsum cumprod".split()
)

_KNOWN = _ELEMENTWISE.union(*_NAMES.values())
