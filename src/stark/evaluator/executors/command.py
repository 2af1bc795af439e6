"""An executor that starts judges by commands, such as ssh, and talks to them over stdin and stdout."""

from __future__ import annotations

import shlex

from stark.core.errors import UsageError
from stark.core.judging import Limits, Tools
from stark.evaluator.executors.stdio import StdioExecutor


def command(line: str, limits: Limits, tools: Tools | None = None) -> StdioExecutor:
    """Create an executor from a command line, such as `ssh box python -m stark.evaluator.judge`.

    ` ;; ` separates several commands, each of which starts a judge. Raises UsageError if a command is empty or
    cannot be parsed.
    """
    try:
        commands = [shlex.split(part) for part in line.split(" ;; ")]
    except ValueError as error:
        raise UsageError(
            f"cannot parse the judge's command: {str(error).lower()}; quote arguments that "
            f"contain spaces, and put a backslash before a literal quote: {line}"
        ) from error
    if not all(commands):
        raise UsageError(
            "a judge's command is empty; write for instance "
            "`command:ssh box python -m stark.evaluator.judge`"
        )
    return StdioExecutor(commands, limits, tools)
