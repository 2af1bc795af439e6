"""`stark capture`, and problems that are named as `package.module:Object`."""

from __future__ import annotations

import re
from pathlib import Path

from stark.cli import consoles
from stark.cli.own_model import asked_model
from stark.cli.places import check_file
from stark.core.errors import UsageError
from stark.core.problem import Problem
from stark.explain.run import mode_line
from stark.problems import load


def capture(
    spec: str, inputs: str | None, output: Path | None, name: str | None, backward: bool
) -> int:
    """Write a problem file, or print it; returns the exit code."""
    if output is not None:
        check_file(output)
    problem = captured(spec, inputs, backward, name)
    if mode := mode_line(problem):
        consoles.say(f"mode: {mode}", stderr=True)
    if output is None:
        consoles.write(problem.source)
    else:
        output.write_text(problem.source, encoding="utf-8")
        consoles.say(f"{output}: {len(problem.source.splitlines())} lines")
    return 0


def load_or_capture(
    spec: str, inputs: str | None, kernelbench: Path | None, backward: bool = False
) -> Problem:
    """The problem in a file or a checkout of KernelBench, or captured if `spec` is `package.module:Object`."""
    if is_object(spec):
        return captured(spec, inputs, backward)
    if inputs is not None and re.fullmatch(r"[\w.]+", spec) and not Path(spec).exists():
        raise UsageError(f"{spec} names no object; with --inputs, write package.module:Object")
    if inputs is not None:
        raise UsageError(
            f"--inputs is for a module such as mypkg.block:Block; {spec} has its own get_inputs"
        )
    return load(spec, kernelbench)


def is_object(spec: str) -> bool:
    """Whether `spec` names a Python object rather than a file."""
    return re.fullmatch(r"[\w.]+:[\w.]+", spec) is not None and not Path(spec).exists()


def captured(
    spec: str, inputs: str | None, backward: bool = False, name: str | None = None
) -> Problem:
    """Capture a module. Raises UsageError with the reason if it cannot be captured."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", spec.rpartition(":")[2]).lower()
    more = ["--name", name or snake.replace(".", "_"), *(["--backward"] if backward else [])]
    problem = asked_model("capture", spec, inputs, more).problem
    assert problem is not None
    return problem
