"""Writes the text of a problem from a definition and workloads: each workload is a case, and all inputs are arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from stark.core.declared import Tolerance
from stark.problems.definitions import (
    Accepted,
    Chosen,
    Definition,
    Origin,
    Scalar,
    TensorForm,
    Workload,
)


def problem_text(chosen: Chosen) -> str:
    """The text of the problem: the reference as it is, and what a problem adds to it."""
    return "\n".join(_lines(*chosen))


def _lines(
    definition: Definition, workloads: Sequence[Workload], left_out: Sequence[str]
) -> Iterator[str]:
    cases = {_case(each): each.axes for each in workloads}
    first = next(iter(cases))
    tolerance = _strictest([each.tolerance for each in workloads])
    for line in (definition.description or definition.name).splitlines():
        yield f"# {line}".rstrip()
    if left_out:
        yield f"# Workloads left out: {'; '.join(left_out)}."
    yield definition.reference.strip()
    yield from ("", "", "import torch", "import torch.nn as nn", "")
    yield f"CASES = {dict.fromkeys(cases, 1.0)!r}"
    yield f"TOLERANCE = {tolerance.model_dump()!r}"
    yield f"AXES = {cases!r}"
    names = ", ".join(definition.inputs)
    yield from ("", "", "class Model(nn.Module):", f"    def forward(self, {names}):")
    yield f"        return run({names})"
    yield from ("", "", f"def get_inputs(case={first!r}):")
    yield from (f"    {line}" for line in _drawing(definition, workloads[0]))
    yield from ("", "", "def get_init_inputs():", "    return []", "")


def _case(workload: Workload) -> str:
    return ",".join(f"{name}={length}" for name, length in workload.axes.items()) or "only"


def _strictest(accepted: Sequence[Accepted]) -> Tolerance:
    """One tolerance for all workloads."""
    return Tolerance(
        absolute=min(each.max_atol for each in accepted),
        relative=min(each.max_rtol for each in accepted),
        matched=max(each.required_matched_ratio for each in accepted),
    )


def _drawing(definition: Definition, workload: Workload) -> Iterator[str]:
    """The body of `get_inputs`: the axes, then the inputs in the order of the definition."""
    for name, axis in definition.axes.items():
        if axis.type != "expr":
            yield (
                f"{name} = {axis.value}"
                if axis.type == "const"
                else f"{name} = AXES[case][{name!r}]"
            )
    for name, axis in definition.axes.items():
        if axis.type == "expr":
            yield f"{name} = int({axis.expression})"
    if definition.custom_inputs_entrypoint is not None:
        known = {name: name for name in definition.axes} | {
            name: _number(origin.value)
            for name, origin in workload.inputs.items()
            if origin.type == "scalar"
        }
        listed = ", ".join(f"{name!r}: {value}" for name, value in known.items())
        yield f"given = {definition.custom_inputs_entrypoint}({{{listed}}}, torch.empty(0).device)"
    yield "return ["
    for name, form in definition.inputs.items():
        origin = workload.inputs.get(name, Origin(type="random"))
        yield f"    {_drawn(name, form, origin)},"
    yield "]"


def _drawn(name: str, form: TensorForm, origin: Origin) -> str:
    """An input as Python."""
    if origin.type == "scalar":
        return _number(origin.value)
    if origin.type == "custom":
        return f"given[{name!r}]"
    lengths = form.shape or ()
    shape = f"({', '.join(lengths)}{',' if len(lengths) == 1 else ''})"
    dtype = f"torch.{form.dtype}"
    if form.dtype == "bool":
        found = f"torch.randint(0, 2, {shape}, dtype={dtype})"
    elif form.dtype.startswith("int"):
        most = 128 if form.dtype == "int8" else 1024
        found = f"torch.randint({-most}, {most}, {shape}, dtype={dtype})"
    elif form.dtype.startswith("float8"):
        found = f"torch.randn({shape}).clamp(-2, 2).to({dtype})"
    else:
        found = f"torch.randn({shape}, dtype={dtype})" + _scaling(name, lengths)
    return found if form.shape is not None else f"{found}.item()"


def _number(value: Scalar | None) -> str:
    """A scalar as Python, which has no literals for infinity and NaN."""
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return repr(value) if is_finite else f"float('{value}')"


def _scaling(name: str, lengths: Sequence[str]) -> str:
    """How SOL-ExecBench scales random numbers by an input's name, for the two kinds that matter to results: matrices of
    weights, so that sums keep their size, and what must be positive.
    """
    if len(lengths) > 1 and name.endswith(("weight", "weights", "proj")):
        return f" / {lengths[-1]}**0.5"
    return ".abs() + 0.1" if name.endswith(("std", "var", "variance")) else ""
