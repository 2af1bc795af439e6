"""Asks the process that runs the user's model. The caller needs no torch."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from stark.core.errors import MachineError, OptionError, UsageError
from stark.core.problem import Problem
from stark.problems import load
from stark.regions.results import Answer


async def ask(work: str, model: str, inputs: str | None, more: Sequence[str]) -> Answer:
    """Start `stark.regions` for one piece of work. What the user's code prints goes to standard error.

    Raises UsageError for a model or inputs that cannot be used, and MachineError if the process dies.
    """
    if inputs is None:
        raise OptionError(f"name the inputs of {model}", "{inputs} package.module:example")
    with TemporaryDirectory() as folder:
        output = Path(folder) / "answer.json"
        line = [sys.executable, "-m", "stark.regions", work, model, "--inputs", inputs]
        process = await asyncio.create_subprocess_exec(
            *(*line, "--output", str(output), *more),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr,
        )
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if not output.exists():
            raise MachineError(
                f"the process that runs {model} ended with code {code}; its output above says why"
            )
        answer = Answer.model_validate_json(output.read_text(encoding="utf-8"))
    if answer.error:
        raise UsageError(answer.error)
    return answer


async def load_or_capture(
    spec: str, inputs: str | None, kernelbench: Path | None, backward: bool = False
) -> Problem:
    """The problem in a file or a checkout of KernelBench, or captured if `spec` is `package.module:Object`."""
    if is_object(spec):
        return await capture_object(spec, inputs, backward)
    _check_no_object(spec, inputs)
    return load(spec, kernelbench)


def is_object(spec: str) -> bool:
    """Whether `spec` names a Python object rather than a file."""
    return re.fullmatch(r"[\w.]+:[\w.]+", spec) is not None and not Path(spec).exists()


def _check_no_object(spec: str, inputs: str | None) -> None:
    """Raise OptionError if inputs are named for what is no object."""
    if inputs is None:
        return
    if re.fullmatch(r"[\w.]+", spec) and not Path(spec).exists():
        raise OptionError(f"{spec} names no object", "with {inputs}, write package.module:Object")
    raise OptionError(
        f"{spec} has its own get_inputs",
        "leave out {inputs}, which is for a module such as mypkg.block:Block",
    )


async def capture_object(
    spec: str, inputs: str | None, backward: bool = False, name: str | None = None
) -> Problem:
    """Capture a module. Raises UsageError with the reason if it cannot be captured."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", spec.rpartition(":")[2]).lower()
    more = ["--name", name or snake.replace(".", "_"), *(["--backward"] if backward else [])]
    problem = (await ask("capture", spec, inputs, more)).problem
    assert problem is not None
    return problem
