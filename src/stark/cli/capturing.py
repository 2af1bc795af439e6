"""`stark capture`, and problems that are named as `package.module:Object`: a process with the user's code captures them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from stark.cli import consoles
from stark.cli.places import check_file
from stark.core.errors import ProblemError, UsageError
from stark.core.problem import Problem
from stark.problems import load


def capture(
    spec: str, inputs: str | None, output: Path | None, name: str | None, backward: bool
) -> int:
    """Write a problem file, or print it; returns the exit code."""
    if output is not None:
        check_file(output)
    problem = captured(spec, inputs, name, backward)
    if output is None:
        consoles.write(problem.source)
    else:
        output.write_text(problem.source, encoding="utf-8")
        consoles.say(f"{output}: {len(problem.source.splitlines())} lines")
    return 0


def load_or_capture(spec: str, inputs: str | None, kernelbench: Path | None) -> Problem:
    """The problem in a file or a checkout of KernelBench, or captured if `spec` is `package.module:Object`."""
    if is_object(spec):
        return captured(spec, inputs)
    if inputs is not None:
        raise UsageError(
            f"--inputs is for a module such as mypkg.block:Block; {spec} has its own get_inputs"
        )
    return load(spec, kernelbench)


def is_object(spec: str) -> bool:
    """Whether `spec` names a Python object rather than a file."""
    return re.fullmatch(r"[\w.]+:[\w.]+", spec) is not None and not Path(spec).exists()


def captured(
    spec: str, inputs: str | None, name: str | None = None, backward: bool = False
) -> Problem:
    """Capture a module in a process of its own. Raises ProblemError with the reason if it cannot be captured."""
    if inputs is None:
        raise UsageError(f"name the inputs of {spec}: --inputs package.module:example")
    if not is_object(spec):
        raise UsageError(f"{spec!r} is no name of an object; write package.module:Object")
    wanted = name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", spec.rpartition(":")[2]).lower()
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{wanted.replace('.', '_')}.py"
        line = [sys.executable, "-m", "stark.capturing", spec, "--inputs", inputs]
        line += ["--output", str(file), *(["--backward"] if backward else [])]
        ended = subprocess.run(
            line,
            stdout=subprocess.DEVNULL,  # what the user's code prints
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        if ended.returncode != 0:
            raise ProblemError(_reason(spec, ended))
        return load(str(file))


def _environment() -> dict[str, str]:
    """The environment, with the current folder among those that are imported from."""
    paths = [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _reason(spec: str, ended: subprocess.CompletedProcess[str]) -> str:
    """The sentence on standard error; without one, the whole of it."""
    for line in reversed(ended.stderr.splitlines()):
        if line.startswith("error: "):
            return line.removeprefix("error: ")
    return f"capturing {spec} ended with code {ended.returncode}:\n{ended.stderr.strip()}"
