"""The exported kernel file: a header with the kernel's origin and limits, the candidate's source, and a check.

The file is a module that defines `ModelNew`. Run as a program, it compares the kernel's results with the reference's.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from string import Template

from stark.core.evaluation import Correct
from stark.core.node import Node
from stark.core.python import parse_python
from stark.core.reference import Reference
from stark.core.run import Run
from stark.explain.evaluation import accuracy_text, objective_text, verdict
from stark.explain.numbers import milliseconds

_OTHER_SHAPES = {
    None: "other shapes and dtypes were not tried",
    True: "two other shapes passed too; other dtypes were not tried",
    False: "WRONG at other shapes, so use the kernel for these shapes only",
}
_VERIFIED = "verified and timed with the forward pass: of floating-point inputs and of parameters"
_BACKWARD = "the source defines a backward pass, which was NOT verified"
_NO_BACKWARD = "NOT supported: for inference only, under torch.no_grad()"


def kernel_file(run: Run, node: Node, reference: Reference) -> str:
    """The file's text for a correct attempt."""
    assert node.candidate is not None and isinstance(node.evaluation, Correct)
    source = node.candidate.source
    tail = files("stark.report").joinpath("kernel_main.txt").read_text(encoding="utf-8")
    accuracy = node.evaluation.accuracy
    main = Template(tail).substitute(
        reference=_literal(run.problem.source),
        device=node.evaluation.device.kind,
        # Doubled, since both programs differ from the exact result and the inputs differ from the judge's.
        allowed=f"{2 * (accuracy.budget + accuracy.reference_relative_rms):.3g}",
    )
    return f"{_head(run, node, reference, source)}{source.rstrip()}\n{main}"


def _head(run: Run, node: Node, reference: Reference, source: str) -> str:
    """The header: a docstring, or comments if the source has a docstring, since that docstring must stay first."""
    lines = [
        f"A kernel for {run.problem.name}, written by STARK {run.version} (run {run.id}, attempt {node.id}).",
        "",
        *(f"{name + ':':<11}{text}" for name, text in _facts(run, node, reference, source)),
        "",
        "Import ModelNew from this file, or run the file to compare its results with the reference's.",
    ]
    if ast.get_docstring(parse_python(source)) is not None:
        return "".join(f"# {line}".rstrip() + "\n" for line in lines) + "\n"
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return f'"""{text}\n"""\n\n'


def _facts(run: Run, node: Node, reference: Reference, source: str) -> Iterator[tuple[str, str]]:
    correct = node.evaluation
    assert isinstance(correct, Correct)
    accuracy, device = correct.accuracy, correct.device
    over = "" if correct.weighing is None else f", {objective_text(correct.weighing)}"
    yield "Speedup", f"{verdict(correct)} (95 % interval{over})"
    for case, each in correct.cases.items():
        yield f"- {case}", f"{_latency(each)}; {verdict(each)}"
    if not correct.cases:
        yield "Latency", _latency(correct)
    yield "Device", f"{device.name} ({device.architecture})"
    yield "Versions", ", ".join(f"{name} {its}" for name, its in reference.versions.items())
    imported = set(re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE))
    packages = ", ".join(sorted(imported - sys.stdlib_module_names))
    yield "Language", f"{run.config.language}; imports {packages}"
    inputs = " and on ".join(
        ", ".join(map(str, each.inputs)) for each in reference.cases.values() or [reference]
    )
    passes = "forward and backward" if run.problem.declared.backward else "the forward pass"
    yield "Verified", f"{passes} on {inputs}; {_OTHER_SHAPES[correct.generalizes]}"
    yield (
        "Accuracy",
        f"{accuracy_text(accuracy)}; relative RMS, against the reference in {accuracy.oracle}",
    )
    yield (
        "Precision",
        f"{accuracy.precision} was asked for; an error does not tell which arithmetic the kernel uses",
    )
    unverified = _BACKWARD if "def backward(" in source else _NO_BACKWARD
    yield "Gradients", _VERIFIED if run.problem.declared.backward else unverified


def _latency(correct: Correct) -> str:
    eager = milliseconds(correct.reference_ms("eager"))
    return f"{milliseconds(correct.latency_ms)}; the reference in eager mode takes {eager}"


def _literal(source: str) -> str:
    """The text as a Python expression with one literal per line."""
    return "".join(f"            {line!r}\n" for line in source.splitlines(keepends=True)) or '""'
