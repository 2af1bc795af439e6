"""`stark hotspots`: where a model spends its time, and with `--optimize`, kernels for the best regions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.text import Text

from stark.cli import consoles
from stark.cli.consoles import can_redraw
from stark.core.errors import MachineError, UsageError
from stark.regions.results import Answer
from stark.regions.table import table_text


def hotspots(model: str, inputs: str | None, top: int, compiling: bool, as_json: bool) -> int:
    """Rank the regions and print the `top` best; returns the exit code."""
    wanted = top if compiling else 0
    found = asked_model("find", model, inputs, ["--compile", str(wanted)], as_json).hotspots
    assert found is not None
    if as_json:
        best = found.model_copy(update={"regions": found.regions[:top]})
        consoles.print_json(best.model_dump(mode="json"))
    else:
        consoles.write(f"{table_text(found, top)}\n")
    return 0


def asked_model(
    work: str, model: str, inputs: str | None, more: list[str], as_json: bool
) -> Answer:
    """Ask the process with the user's model; a terminal shows a spinner meanwhile.

    With `as_json`, what the user's code prints goes to standard error. Raises UsageError for a model or inputs that
    cannot be used, and MachineError if the process dies.
    """
    if inputs is None:
        raise UsageError("name the model's inputs: --inputs package.module:example")
    console = consoles.console(stderr=True)
    spinner = console.status(Text(f"running {model}"))
    with TemporaryDirectory() as folder:
        output = Path(folder) / "answer.json"
        line = [sys.executable, "-m", "stark.regions", work, model, "--inputs", inputs]
        if can_redraw(console):
            spinner.start()
        try:
            ended = subprocess.run(
                [*line, "--output", str(output), *more], stdout=sys.stderr if as_json else None
            )
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
