"""A judge behind any command that carries standard input and output, such as ssh, srun or docker."""

from __future__ import annotations

import shlex

from stark.core.errors import UsageError
from stark.core.judging import Limits, Tools
from stark.evaluator.executors.stdio import StdioExecutor


def command(line: str, limits: Limits, tools: Tools | None = None) -> StdioExecutor:
    """For instance `ssh box python -m stark.evaluator.judge`; several commands are separated by ` ;; `."""
    try:
        commands = [shlex.split(part) for part in line.split(" ;; ")]
    except ValueError as error:
        raise UsageError(
            f"the judge's command cannot be read: {str(error).lower()}; put what belongs together between two quotes, "
            f"and a backslash before a quote that is meant as it is: {line}"
        ) from error
    if not all(commands):
        raise UsageError(
            "name the judge's command, as in `command:ssh box python -m stark.evaluator.judge`"
        )
    return StdioExecutor(commands, limits, tools)
