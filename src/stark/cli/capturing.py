"""`stark capture`: writes a module of the user's own package as a problem file."""

from __future__ import annotations

from pathlib import Path

from stark.cli import consoles
from stark.cli.own_model import waited
from stark.cli.places import check_file
from stark.explain.run import mode_line
from stark.regions.asking import capture_object


def capture(
    spec: str, inputs: str | None, output: Path | None, name: str | None, backward: bool
) -> int:
    """Write a problem file, or print it; returns the exit code."""
    if output is not None:
        check_file(output)
    problem = waited(capture_object(spec, inputs, backward, name), spec)
    if mode := mode_line(problem):
        consoles.say(f"mode: {mode}", stderr=True)
    if output is None:
        consoles.write(problem.source)
    else:
        output.write_text(problem.source, encoding="utf-8")
        consoles.say(f"{output}: {len(problem.source.splitlines())} lines")
    return 0
