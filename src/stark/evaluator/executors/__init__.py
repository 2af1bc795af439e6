"""Registry of executors: the ways to reach a judge, by name.

Executors start judges as commands and never import them. To add one, write a file in this package
and add a line to the registry.
"""

from __future__ import annotations

from collections.abc import Callable

from stark.core.errors import UsageError
from stark.core.judging import Limits, Tools
from stark.evaluator.executors.base import Executor, RequestingExecutor
from stark.evaluator.executors.command import command
from stark.evaluator.executors.folder import in_folder, require_requests, serve_folder
from stark.evaluator.executors.local import local
from stark.evaluator.executors.stdio import StdioExecutor

JUDGES: dict[str, Callable[[str, Limits, Tools], StdioExecutor]] = {
    "local": local,
    "command": command,
}
"""The executors that start judges themselves. Only these can serve a worker."""

EXECUTORS: dict[str, Callable[[str, Limits, Tools], RequestingExecutor]] = {
    **JUDGES,
    "folder": in_folder,
}
"""Factories by name. Each takes the text after the notation's colon, the candidates' limits, and
the NVIDIA tools to run them under."""

__all__ = [
    "EXECUTORS",
    "Executor",
    "open_executor",
    "open_judges",
    "require_requests",
    "serve_folder",
]


def open_executor(
    notation: str,
    limits: Limits | None = None,
    tools: Tools | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Executor:
    """Open an executor from `local`, `local:cuda:0,cuda:1`, `command:LINE` or `folder:PATH`.

    Judges start with the first request. Close the executor when the last run that uses it has ended:

    ```python
    judge = stark.open_executor("local")
    results = await asyncio.gather(*(stark.aoptimize(path, judge=judge, model=model) for path in paths))
    await judge.close()
    ```

    `limits` and `tools` are those of every candidate; by default 180 s for a build, 16 GB of host memory, and no tools.
    `on_notice` gets what to show to the user while no answer arrives (see `RequestingExecutor`). Raises UsageError if
    the notation is not one of these.
    """
    name, rest = _parts(notation)
    executor = EXECUTORS[name](rest, limits or Limits(), tools or Tools())
    if on_notice is not None:
        executor.on_notice = on_notice
    return executor


def open_judges(notation: str) -> StdioExecutor:
    """Open the judges of `local` or `command` for a worker.

    Requests bring their own limits and tools. Raises UsageError for any other notation.
    """
    name, rest = _parts(notation)
    if name not in JUDGES:
        raise UsageError(
            f"a worker cannot forward requests to {name!r}; "
            "give it the executor local or command:LINE"
        )
    return JUDGES[name](rest, Limits(), Tools())


def _parts(notation: str) -> tuple[str, str]:
    """The executor's name and the text after the colon. Raises UsageError for an unknown name."""
    name, _, rest = notation.partition(":")
    if name not in EXECUTORS or (name != "local" and not rest):
        raise UsageError(
            f"{notation!r} is not an executor; "
            "use local, local:DEVICES, command:LINE or folder:PATH"
        )
    return name, rest
