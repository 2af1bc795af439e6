"""Asks the process that runs the user's model: the command line itself imports no torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.text import Text

from stark.cli import consoles
from stark.core.errors import MachineError, UsageError
from stark.regions.results import Answer


def asked_model(work: str, model: str, inputs: str | None, more: Sequence[str]) -> Answer:
    """Start `stark.regions` for one piece of work; a terminal shows a spinner meanwhile.

    What the user's code prints goes to standard error. Raises UsageError for a model or inputs that cannot be used, and
    MachineError if the process dies.
    """
    if inputs is None:
        raise UsageError(f"name the inputs of {model}: --inputs package.module:example")
    console = consoles.console(stderr=True)
    spinner = console.status(Text(f"running {model}"))
    with TemporaryDirectory() as folder:
        output = Path(folder) / "answer.json"
        line = [sys.executable, "-m", "stark.regions", work, model, "--inputs", inputs]
        if consoles.can_redraw(console):
            spinner.start()
        try:
            ended = subprocess.run([*line, "--output", str(output), *more], stdout=sys.stderr)
        finally:
            spinner.stop()
        if not output.exists():
            raise MachineError(
                f"the process that runs {model} ended with code {ended.returncode}; its output above says why"
            )
        answer = Answer.model_validate_json(output.read_text(encoding="utf-8"))
    if answer.error:
        raise UsageError(answer.error)
    return answer
