"""The kernel as a file to take away: the candidate's source unchanged, with where it comes from and a check.

The file is a module with `ModelNew`, and run as a program it compares the kernel with the reference
by itself, with nothing but torch and what the candidate imports.
"""

from __future__ import annotations

import ast
from importlib.resources import files
from string import Template

from stark.core.evaluation import Correct
from stark.core.node import Node
from stark.core.python import parse_python
from stark.core.reference import Reference
from stark.core.run import Run
from stark.explain.evaluation import verdict
from stark.explain.numbers import milliseconds


def kernel_file(run: Run, node: Node, reference: Reference) -> str:
    """The text of the file. The node is correct."""
    assert node.candidate is not None and isinstance(node.evaluation, Correct)
    source = node.candidate.source
    tail = files("stark.report").joinpath("kernel_main.txt").read_text(encoding="utf-8")
    accuracy = node.evaluation.accuracy
    main = Template(tail).substitute(
        reference=_literal(run.problem.source),
        device=node.evaluation.device.kind,
        # Both sides err against the exact values, and other inputs than the judge's are drawn.
        allowed=f"{2 * (accuracy.budget + accuracy.reference_relative_rms):.3g}",
    )
    return f"{_head(run, node, reference, source)}{source.rstrip()}\n{main}"


def _head(run: Run, node: Node, reference: Reference, source: str) -> str:
    """A docstring; or comments where the source has a docstring, which must stay the first one."""
    lines = _provenance(run, node, reference)
    if ast.get_docstring(parse_python(source)) is not None:
        return "".join(f"# {line}".rstrip() + "\n" for line in lines) + "\n"
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return f'"""{text}\n"""\n\n'


def _provenance(run: Run, node: Node, reference: Reference) -> list[str]:
    correct = node.evaluation
    assert isinstance(correct, Correct)
    accuracy, device = correct.accuracy, correct.device
    versions = ", ".join(f"{name} {version}" for name, version in reference.versions.items())
    return [
        f"A kernel for {run.problem.name}, written by STARK {run.version} (run {run.id}, attempt {node.id}).",
        "",
        f"Speedup:  {verdict(correct)} (95 % interval)",
        f"Latency:  {milliseconds(correct.latency_ms)}, the reference in eager mode "
        f"{milliseconds(correct.references['eager'].latency_ms)}",
        f"Device:   {device.name} ({device.architecture})",
        f"Versions: {versions}",
        f"Accuracy: relative RMS error {accuracy.relative_rms:.2g} against the reference in "
        f"{accuracy.oracle}; {accuracy.budget:.2g} was allowed",
        f"Language: {run.config.language}",
        "",
        "Import ModelNew from here, or run the file to compare it with the reference.",
    ]


def _literal(source: str) -> str:
    """The text as a Python expression that reads line by line, whatever quotes are in it."""
    return "".join(f"            {line!r}\n" for line in source.splitlines(keepends=True)) or '""'
