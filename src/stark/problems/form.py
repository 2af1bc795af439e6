"""Checks, without running it, that a source has the three parts of KernelBench's format.

Whether the parts fit together is found by the judge, which runs them.
"""

from __future__ import annotations

from stark.core.python import bindings, parse_python

WHAT_TO_ADD = {
    "Model": "a class `Model(nn.Module)` whose `forward` is the computation",
    "get_inputs": "a function `get_inputs()` that returns the list of forward's arguments",
    "get_init_inputs": "a function `get_init_inputs()` that returns the list of Model's arguments (`[]` for none)",
}


def form_fault(source: str) -> str | None:
    """The first reason why this source is not a problem, as one sentence, or None."""
    try:
        tree = parse_python(source)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {error.msg}."
    parts = dict(bindings(tree))
    for name, what in WHAT_TO_ADD.items():
        if name not in parts:
            return f"line {len(source.splitlines()) or 1}: {name} is missing; add {what}."
    return None


def defines_any_part(source: str) -> bool:
    """Whether the source is meant as a problem: it defines a part of one, or cannot be parsed."""
    try:
        tree = parse_python(source)
    except SyntaxError:
        return True
    return any(name in WHAT_TO_ADD for name, _ in bindings(tree))
