"""Reads a definition with its workloads and chooses those that become cases of a problem.

The form is that of FlashInfer-Bench (`definitions/**/NAME.json` with `workloads/**/NAME.jsonl`) and of SOL-ExecBench
(`definition.json` with `workload.jsonl`): named axes, inputs and outputs, a reference with the function `run`, and for each
workload the lengths of the variable axes and where the inputs come from. `definition_text` writes the problem.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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


class Chosen(NamedTuple):
    """A definition and its cases."""

    definition: Definition
    workloads: list[Workload]
    """From small to large."""

    left_out: list[str]
    """Why other workloads are no cases."""


def read(path: Path) -> Chosen:
    """The definition in a file, and those of its workloads that become cases.

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
    return Chosen(definition, *_usable(path, workloads))


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


def _usable(path: Path, workloads: Sequence[Workload]) -> tuple[list[Workload], list[str]]:
    """The workloads that become cases, from small to large, and why others do not."""
    notes = []
    drawn = [w for w in workloads if all(each.type != "safetensors" for each in w.inputs.values())]
    if len(drawn) < len(workloads):
        notes.append(f"{len(workloads) - len(drawn)} read .safetensors files")
    if not drawn:
        raise ProblemError(
            f"{path}: {notes[0] if notes else 'there is no workload'}; a problem needs at least one whose inputs are drawn."
        )
    same = [each for each in drawn if each.inputs == drawn[0].inputs]
    if len(same) < len(drawn):
        notes.append(
            f"{len(drawn) - len(same)} differ from the first in their scalars or in how inputs are made"
        )
    different = list({tuple(each.axes.items()): each for each in same}.values())
    ordered = sorted(different, key=lambda each: each.size)
    if len(ordered) > MOST_CASES:
        notes.append(f"{len(ordered) - MOST_CASES} have sizes between those that were chosen")
        last = len(ordered) - 1
        ordered = [ordered[round(k * last / (MOST_CASES - 1))] for k in range(MOST_CASES)]
    return ordered, notes
