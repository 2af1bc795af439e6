"""Registry of executors: the ways to reach a judge, by name.

Executors reach judges through commands or files and never import the judge's code. To add an
executor, write a file in this package and add a line to `EXECUTORS`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from stark.core.errors import UsageError
from stark.core.judging import Limits, Tools
from stark.evaluator.executors.base import Executor, RequestingExecutor
from stark.evaluator.executors.cluster import RayExecutor
from stark.evaluator.executors.folder import FolderExecutor
from stark.evaluator.executors.judges import CommandsExecutor, JudgesExecutor
from stark.evaluator.executors.worker import require_requests, serve_folder

__all__ = [
    "EXECUTORS",
    "Executor",
    "RequestingExecutor",
    "open_executor",
    "open_judges",
    "require_requests",
    "serve_folder",
]


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


EXECUTORS: dict[str, Callable[[str, Limits, Tools], RequestingExecutor]] = {
    "local": local,
    "command": command,
    "ray": RayExecutor,
    "folder": FolderExecutor,
}
"""Maps an executor's name to its factory. A factory takes the text after the colon in `name:text`, the
limits that apply to candidates, and the NVIDIA tools under which candidates run."""


def open_executor(
    notation: str,
    limits: Limits | None = None,
    tools: Tools | None = None,
    on_notice: Callable[[str], None] | None = None,
    device_class: str | None = None,
) -> RequestingExecutor:
    """Open an executor from `local`, `local:cuda:0,cuda:1`, `command:LINE`, `folder:PATH` or `ray:ADDRESS`.

    Judges start at the first request. Close the executor when the last run that uses it has ended:

    ```python
    judge = stark.open_executor("local")
    results = await asyncio.gather(*(stark.aoptimize(path, judge=judge, model=model) for path in paths))
    await judge.close()
    ```

    `limits` and `tools` apply to every candidate. By default, no tools are used, and the limits are `Limits()`:
    for example, 180 s for a build and 16 GB of host memory. `on_notice` is called with status texts for the
    user (see `RequestingExecutor`). Only machines in whose kind `device_class` occurs, such as `H100`, are used.
    Raises UsageError for any other notation.
    """
    name, _, rest = notation.partition(":")
    if name not in EXECUTORS or (name not in ("local", "ray") and not rest):
        raise UsageError(
            f"{notation!r} is not an executor; "
            "use local, local:DEVICES, command:LINE, folder:PATH, ray or ray:ADDRESS"
        )
    executor = EXECUTORS[name](rest, limits or Limits(), tools or Tools())
    if on_notice is not None:
        executor.on_notice = on_notice
    if device_class is not None:
        executor.bind(device_class)
    return executor


def open_judges(notation: str) -> JudgesExecutor:
    """Open an executor for a worker, from `local`, `local:DEVICES`, `command:LINE` or `ray:ADDRESS`.

    Each request contains its own limits and tools. Raises UsageError for any other notation.
    """
    if notation.startswith("folder:"):
        raise UsageError(
            "a worker cannot forward requests to 'folder'; "
            "use local, local:DEVICES, command:LINE or ray:ADDRESS as its executor"
        )
    judges = open_executor(notation)
    assert isinstance(judges, JudgesExecutor)
    return judges
