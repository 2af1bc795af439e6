"""The exported kernel file: a header with the kernel's origin and limits, the candidate's source, a guard, and a check.

The file is a module. `ModelNew` is the candidate as it was judged; `apply` and `Guarded` use it only for calls like those
that it was verified for. Run as a program, the file compares the kernel's results with the reference's. The guard never
stands between the judge and `ModelNew`, so it cannot hide a wrong or slow candidate.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from string import Template

from stark.core.candidate import Candidate
from stark.core.evaluation import Correct
from stark.core.node import Node
from stark.core.python import bindings, parse_python
from stark.core.reference import Reference
from stark.core.run import Run
from stark.deploy.embedded import guard_source
from stark.explain.evaluation import accuracy_text, objective_text, shapes_text, verdict
from stark.explain.numbers import milliseconds
from stark.languages import language

_VERIFIED = "verified and timed with the forward pass: of floating-point inputs and of parameters"
_BACKWARD = (
    "the source defines a backward pass, which was NOT verified; apply and Guarded run the original"
)
_NO_BACKWARD = "NOT supported by ModelNew: for inference only; apply and Guarded run the original"
_FOR_GPUS = ("Build cuda", "triton", "pytorch-triton")
"""How tools for GPUs begin in the judge's list of compilers."""

_USE = """\
Import apply to put the kernel into a model, or Guarded to make a new module: calls unlike those that were verified, or
that need unverified gradients, run the original. ModelNew is the kernel alone, without these checks.
Run the file to compare the kernel's results with the reference's."""


def kernel_file(run: Run, node: Node, reference: Reference) -> str:
    """The file's text for a correct attempt."""
    assert node.candidate is not None and isinstance(node.evaluation, Correct)
    source = node.candidate.source
    tail = files("stark.report").joinpath("kernel_main.txt").read_text(encoding="utf-8")
    accuracy = node.evaluation.accuracy
    names = offered(source)
    main = Template(tail).substitute(
        reference=_literal(run.problem.source),
        guard=guard_source(),
        name=kernel_name(run, node),
        device=node.evaluation.device.kind,
        architecture=node.evaluation.device.architecture,
        apply=names["apply"],
        guarded=names["Guarded"],
        # Doubled, since both programs differ from the exact result and the inputs differ from the judge's.
        allowed=f"{2 * (accuracy.budget + accuracy.reference_relative_rms):.3g}",
    )
    return f"{_head(run, node, reference, source)}{source.rstrip()}\n{main}"


def kernel_name(run: Run, node: Node) -> str:
    """A name that no other kernel has, for `torch.ops`."""
    assert node.candidate is not None
    return (
        f"{run.problem.slug.replace('-', '_')}_{node.candidate.digest[:6]}{run.problem.digest[:6]}"
    )


def offered(source: str) -> dict[str, str]:
    """What `apply` and `Guarded` are called in the file of a candidate, which may define such names itself."""
    taken = {name for name, _ in bindings(parse_python(source))}
    return {name: f"stark_{name}" if name in taken else name for name in ("apply", "Guarded")}


def _head(run: Run, node: Node, reference: Reference, source: str) -> str:
    """The header: a docstring, or comments if the source has a docstring, since that docstring must stay first."""
    lines = [
        f"A kernel for {run.problem.name}, written by STARK {run.version} (run {run.id}, attempt {node.id}).",
        "",
        *(f"{name + ':':<11}{text}" for name, text in facts(run, node, reference)),
        "",
        *_use(source).splitlines(),
    ]
    if ast.get_docstring(parse_python(source)) is not None:
        return "".join(f"# {line}".rstrip() + "\n" for line in lines) + "\n"
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return f'"""{text}\n"""\n\n'


def _use(source: str) -> str:
    names = offered(source)
    return re.sub(r"\b(apply|Guarded)\b", lambda found: names[found[0]], _USE)


def facts(run: Run, node: Node, reference: Reference) -> Iterator[tuple[str, str]]:
    """What was measured and verified of a correct attempt, each with its name."""
    assert node.candidate is not None
    source = node.candidate.source
    yield from _facts(run, node, reference, source)
    tools = ", ".join(tool.name for tool in language(node.candidate.language).tools)
    yield "Importing", f"needs {tools}, but not STARK"
    original = run.problem.declared.original
    if original is not None:
        mode = "train()" if original.training else "eval()"
        yield "Original", f"{original.name} in {mode}"


def _facts(run: Run, node: Node, reference: Reference, source: str) -> Iterator[tuple[str, str]]:
    correct = node.evaluation
    assert isinstance(correct, Correct) and node.candidate is not None
    accuracy, device = correct.accuracy, correct.device
    over = "" if correct.weighing is None else f", {objective_text(correct.weighing)}"
    yield "Speedup", f"{verdict(correct)} (95 % interval{over})"
    for case, each in correct.cases.items():
        yield f"- {case}", f"{_latency(each)}; {verdict(each)}"
    if not correct.cases:
        yield "Latency", _latency(correct)
    yield "Device", f"{device.name} ({device.architecture})"
    yield "Versions", ", ".join(_versions(reference, node.candidate))
    imported = set(re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE))
    packages = ", ".join(sorted(imported - sys.stdlib_module_names))
    yield "Language", f"{node.candidate.language}; imports {packages}"
    inputs = " and on ".join(
        ", ".join(map(str, each.inputs)) for each in reference.cases.values() or [reference]
    )
    passes = "forward and backward" if run.problem.declared.backward else "the forward pass"
    yield (
        "Verified",
        f"{passes} on {inputs}; {shapes_text(correct) or 'no other shapes were tried'}",
    )
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


def _versions(reference: Reference, candidate: Candidate) -> Iterator[str]:
    """The judge's versions, without those of compilers that did not build the kernel: for GPUs if it is for a CPU, and
    all of them if it calls PyTorch alone.
    """
    uncompiled = candidate.language == "pytorch" and "torch.compile" not in candidate.source
    for name, its in reference.versions.items():
        parts = its.split(", ")
        if name == "languages" or (name == "compilers" and uncompiled):
            continue
        if name == "compilers" and reference.device.kind == "cpu":
            parts = [part for part in parts if not part.startswith(_FOR_GPUS)]
        yield f"{name} {', '.join(parts)}"


def _latency(correct: Correct) -> str:
    eager = milliseconds(correct.reference_ms("eager"))
    return f"{milliseconds(correct.latency_ms)}; the reference in eager mode takes {eager}"


def _literal(source: str) -> str:
    """The text as a Python expression with one literal per line."""
    return "".join(f"        {line!r}\n" for line in source.splitlines(keepends=True)) or '""'
