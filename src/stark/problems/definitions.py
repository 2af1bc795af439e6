"""Turns a definition with its workloads into the text of a problem.

The form is that of FlashInfer-Bench (`definitions/**/NAME.json` with `workloads/**/NAME.jsonl`) and of SOL-ExecBench
(`definition.json` with `workload.jsonl`): named axes, inputs and outputs, a reference with the function `run`, and for each
workload the lengths of the variable axes and where the inputs come from. A workload becomes a case.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stark.core.declared import Tolerance
from stark.core.errors import ProblemError

MOST_CASES = 8
"""A problem gets at most so many workloads, spread from the smallest to the largest: each is judged by itself."""

PARTS = {"axes", "inputs", "outputs", "reference"}
"""What a definition has, and other JSON files have not."""

Scalar = bool | int | float


class _Read(BaseModel):
    """A part of somebody else's file, whose other fields do not matter."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Axis(_Read):
    """A length: constant, named by each workload, or computed from others."""

    type: Literal["const", "var", "expr"]
    value: int = 0
    expression: str = ""


class TensorForm(_Read):
    """An input or output. A shape of None is a Python number."""

    shape: tuple[str, ...] | None
    dtype: str


class Definition(_Read):
    """What is computed."""

    name: str
    description: str | None = None
    axes: dict[str, Axis]
    inputs: dict[str, TensorForm]
    outputs: dict[str, TensorForm]
    reference: str
    custom_inputs_entrypoint: str | None = None


class Origin(_Read):
    """Where an input comes from."""

    type: Literal["random", "scalar", "safetensors", "custom"]
    value: Scalar | None = None


class Accepted(_Read):
    """The errors that SOL-ExecBench accepts in a workload."""

    max_atol: float = 1e-2
    max_rtol: float = 1e-2
    required_matched_ratio: float = 0.99


class Workload(_Read):
    """One set of inputs."""

    axes: dict[str, int]
    inputs: dict[str, Origin]
    tolerance: Accepted = Field(default=Accepted())

    @property
    def scalars(self) -> dict[str, Scalar | None]:
        """The numbers that are given to the reference, by name."""
        return {name: each.value for name, each in self.inputs.items() if each.type == "scalar"}

    @property
    def size(self) -> int:
        """A measure of the work: the product of the lengths."""
        product = 1
        for length in self.axes.values():
            product *= max(length, 1)
        return product


def is_definition(path: Path) -> bool:
    """Whether the file is a definition."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(found, dict) and found.keys() >= PARTS


def problem_text(path: Path) -> tuple[str, str]:
    """The name and the text of the problem in a definition's file.

    Raises ProblemError for a file of another form, and if no workload can be a case.
    """
    try:
        definition = Definition.model_validate_json(path.read_bytes())
        lines = _workloads_of(path).read_text(encoding="utf-8").splitlines()
        workloads = [_workload(line) for line in lines if line.strip()]
    except ValueError as error:
        raise ProblemError(
            f"{path}: {_fault(error)}; definitions and workloads have the form of FlashInfer-Bench or SOL-ExecBench."
        ) from error
    _check(path, definition)
    usable, notes = _usable(path, definition, workloads)
    return definition.name, "\n".join(_lines(definition, usable, notes))


def _fault(error: ValueError) -> str:
    """What is wrong with a file; of several faults, the first."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _workload(line: str) -> Workload:
    """The workload in a line. FlashInfer-Bench puts it into a record, and accepts no element with a larger error."""
    found = json.loads(line)
    if isinstance(found, dict) and "workload" in found:
        found = {"tolerance": {"required_matched_ratio": 1.0}} | found["workload"]
    return Workload.model_validate(found)


def _workloads_of(path: Path) -> Path:
    """The file with a definition's workloads. Raises ProblemError if there is none."""
    beside = [path.with_name("workload.jsonl"), path.with_suffix(".jsonl")]
    parts = path.resolve().parts
    if "definitions" in parts:
        place = len(parts) - 1 - parts[::-1].index("definitions")
        mirrored = Path(*parts[:place], "workloads", *parts[place + 1 :])
        beside.append(mirrored.with_suffix(".jsonl"))
    for each in beside:
        if each.is_file():
            return each
    raise ProblemError(
        f"{path} is a definition without workloads; put them into {' or '.join(map(str, beside))}, one in each line."
    )


def _check(path: Path, definition: Definition) -> None:
    """Raise ProblemError for names that cannot be Python's."""
    for name in (*definition.axes, *definition.inputs):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ProblemError(f"{path}: {name!r} is no name in Python; rename this axis or input.")


def _usable(
    path: Path, definition: Definition, workloads: Sequence[Workload]
) -> tuple[list[Workload], list[str]]:
    """The workloads that become cases, from small to large, and why others do not."""
    notes = []
    drawn = [w for w in workloads if all(each.type != "safetensors" for each in w.inputs.values())]
    if len(drawn) < len(workloads):
        notes.append(f"{len(workloads) - len(drawn)} read .safetensors files")
    if not drawn:
        raise ProblemError(
            f"{path}: {notes[0] if notes else 'there is no workload'}; a problem needs at least one whose inputs are drawn."
        )
    same = [each for each in drawn if each.scalars == drawn[0].scalars]
    if len(same) < len(drawn):
        notes.append(f"{len(drawn) - len(same)} have other numbers than the first")
    different = list({tuple(each.axes.items()): each for each in same}.values())
    ordered = sorted(different, key=lambda each: each.size)
    if len(ordered) > MOST_CASES:
        notes.append(f"{len(ordered) - MOST_CASES} lie between others in size")
        last = len(ordered) - 1
        ordered = [ordered[round(k * last / (MOST_CASES - 1))] for k in range(MOST_CASES)]
    return ordered, notes


def _lines(
    definition: Definition, workloads: Sequence[Workload], notes: list[str]
) -> Iterator[str]:
    """The text of the problem."""
    cases = {_case(each): each.axes for each in workloads}
    first = next(iter(cases))
    tolerance = _strictest([each.tolerance for each in workloads])
    for line in (definition.description or definition.name).splitlines():
        yield f"# {line}".rstrip()
    if notes:
        yield f"# Workloads left out: {'; '.join(notes)}."
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
            name: repr(value) for name, value in workload.scalars.items()
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
        return repr(origin.value)
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


def _scaling(name: str, lengths: Sequence[str]) -> str:
    """How SOL-ExecBench scales random numbers by an input's name, for the two kinds that matter to results: matrices of
    weights, so that sums keep their size, and what must be positive.
    """
    if len(lengths) > 1 and name.endswith(("weight", "weights", "proj")):
        return f" / {lengths[-1]}**0.5"
    return ".abs() + 0.1" if name.endswith(("std", "var", "variance")) else ""
