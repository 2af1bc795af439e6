"""Ways to reach a judge, by name. Starts judges by command and never imports one.

To add one: a file beside this one and its line in the registry.
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
"""Those that start judges themselves, and so can judge for others."""

EXECUTORS: dict[str, Callable[[str, Limits, Tools], RequestingExecutor]] = {
    **JUDGES,
    "folder": in_folder,
}
"""Each is opened with what stands behind the colon of its notation, the limits for candidates, and the tools that they are run under."""

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
    """An executor from `local`, `local:cuda:0,cuda:1`, `command:LINE` or `folder:PATH`. Raises UsageError.

    `on_notice` gets what to show to the user while no answer arrives (see `RequestingExecutor`).
    """
    name, rest = _parts(notation)
    executor = EXECUTORS[name](rest, limits or Limits(), tools or Tools())
    if on_notice is not None:
        executor.on_notice = on_notice
    return executor


def open_judges(notation: str) -> StdioExecutor:
    """The judges of `local` or `command`, for a worker: limits and tools come with each request. Raises UsageError."""
    name, rest = _parts(notation)
    if name not in JUDGES:
        raise UsageError("a worker judges by itself; give it --executor local or command:LINE")
    return JUDGES[name](rest, Limits(), Tools())


def _parts(notation: str) -> tuple[str, str]:
    """Which executor, and what stands behind the colon. Raises UsageError."""
    name, _, rest = notation.partition(":")
    if name not in EXECUTORS or (name != "local" and not rest):
        raise UsageError(
            f"{notation!r} is no executor; use local, local:DEVICES, command:LINE or folder:PATH"
        )
    return name, rest
