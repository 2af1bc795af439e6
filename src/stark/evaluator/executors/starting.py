"""Executors that start judges by commands and talk to them over stdin and stdout."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from stark.core.errors import UsageError
from stark.core.judging import Limits, Tools
from stark.evaluator.executors.judges import CommandsExecutor


def local(devices: str, limits: Limits, tools: Tools | None = None) -> CommandsExecutor:
    """Create an executor with a judge on this machine for each of `devices`, such as `cpu` or `cuda:0,cuda:1`.

    If `devices` is empty, every visible GPU gets a judge. With fewer than two GPUs, one judge chooses its device.
    """
    names = [name.strip() for name in devices.split(",") if name.strip()] or _all_devices()
    base = [sys.executable, "-m", "stark.evaluator.judge", "--device"]
    return CommandsExecutor([[*base, name] for name in names], limits, tools)


def command(line: str, limits: Limits, tools: Tools | None = None) -> CommandsExecutor:
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
    return CommandsExecutor(commands, limits, tools)


def _all_devices() -> list[str]:
    """Every visible GPU if there are several; otherwise `auto`, so that the judge chooses."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = Path("/dev").glob("nvidia[0-9]*") if chosen is None else chosen.split(",")
    count = sum(bool(str(each).strip()) for each in there)
    return [f"cuda:{index}" for index in range(count)] if count > 1 else ["auto"]
