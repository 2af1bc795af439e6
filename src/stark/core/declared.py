"""Reads what a problem file says about itself in constants, beside `Model` and its inputs.

All are optional, and each is a literal at the file's top level:

- `CASES = {"prefill": 1.0, "decode": 3.0}`: names of input sets with their weights. `get_inputs(case)` then takes a name.
- `OBJECTIVE = "geomean"` or `"worst"`: how the speedups of several cases become one.
- `BACKWARD = True`: a candidate is verified and timed with its gradients.
- `TOLERANCE = {"absolute": 0.01, "relative": 0.01, "matched": 0.99}`: the error that the problem's source accepts; see
  `Tolerance`.
- `ORIGINAL = {...}`: the module that the problem was captured from; see `Original`.
"""

from __future__ import annotations

import ast
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from stark.core.base import Frozen
from stark.core.python import parse_python

HEAVIEST = 1e100
"""Weights are smaller, so that products and sums of weights are finite."""

Objective = Literal["geomean", "worst"]
"""`geomean`: the geometric mean of the cases' speedups, weighted. `worst`: the smallest speedup."""


class Original(Frozen):
    """The module that a problem was captured from, and how it is called.

    A kernel may take its place only where the class, these attributes and the form of the call are the same.
    """

    name: str
    """The class as `package.module:QualifiedName`."""

    arguments: tuple[str, ...]
    """Parameters of the original's forward, in the order in which `Model.forward` takes them. Their values contain
    tensors and may be nested. A name can also be a keyword that forward takes by `**`."""

    constants: dict[str, str] = Field(default={})
    """The other arguments of forward, as `repr` shows their values. A call with other values runs the original."""

    training: bool = False
    attributes: dict[str, dict[str, str]] = Field(default={})
    """For each submodule (the module itself is ""), the attributes that its code reads: plain values as `repr` shows them,
    names of functions and classes, digests of tensors and of long texts."""

    code: dict[str, str] = Field(default={})
    """Functions, methods and global constants that the code was copied from, by `package.module:name`: digests of their
    sources, or the constants' values."""

    versions: dict[str, str] = Field(default={})
    """Versions of the packages that the code was copied from."""


class Tolerance(Frozen):
    """The error that another benchmark accepts for this problem. It is shown beside the judge's budget and decides nothing.

    An element matches if it is within `absolute + relative * |reference|` of the reference.
    """

    absolute: float
    relative: float
    matched: float
    """The share of elements that must match."""


class Declared(Frozen):
    """The constants of a problem file."""

    cases: dict[str, float] = Field(default={})
    """Names of input sets with their weights; empty if there is only one set."""

    objective: Objective = Field(default="geomean")
    backward: bool = False
    tolerance: Tolerance | None = None
    original: Original | None = None

    @field_validator("cases")
    @classmethod
    def _weights_are_positive(cls, cases: dict[str, float]) -> dict[str, float]:
        for name, weight in cases.items():
            if not 0 < weight < HEAVIEST:
                raise ValueError(
                    f"the weight of {name!r} is {weight}; weights are positive numbers below {HEAVIEST:g}"
                )
        return cases


NAMES = {
    "CASES": "cases",
    "OBJECTIVE": "objective",
    "BACKWARD": "backward",
    "TOLERANCE": "tolerance",
    "ORIGINAL": "original",
}


def declared(source: str) -> Declared:
    """Read the constants of a problem's source.

    Raises ValueError with the line and the reason for a constant that is not a literal or has another form. Raises
    SyntaxError for a source that does not parse.
    """
    found: dict[str, Any] = {}
    for statement in parse_python(source).body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if name in NAMES:
                found |= {NAMES[name]: _literal(name, value)}
                _check(found, name, value.lineno)
    return Declared(**found)


def _literal(name: str, value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except ValueError:
        raise ValueError(
            f"line {value.lineno}: {name} is not a literal; write its value out, such as {EXAMPLES[name]}"
        ) from None


def _check(found: dict[str, Any], name: str, line: int) -> None:
    try:
        Declared(**found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][1:]))
        raise ValueError(
            f"line {line}: {name}{where and ' ' + where}: {first['msg']}; write, for example, {EXAMPLES[name]}"
        ) from None


EXAMPLES = {
    "CASES": 'CASES = {"small": 1.0, "large": 2.0}',
    "OBJECTIVE": 'OBJECTIVE = "geomean"',
    "BACKWARD": "BACKWARD = True",
    "TOLERANCE": 'TOLERANCE = {"absolute": 0.01, "relative": 0.01, "matched": 0.99}',
    "ORIGINAL": 'ORIGINAL = {"name": "package.module:Class", "arguments": ["x"]}',
}
