"""Building candidates: each in a child without a device, into a folder named by what it is built from.

Builds of different candidates run side by side; the same candidate is built once. The folder's name is the
digest of source, toolchain and architecture, so a later judge finds everything compiled.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from stark.core.base import digest
from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.evaluator.judge.children import ChildFailed, Forkserver, child_environment
from stark.evaluator.protocol import Limits
from stark.languages import language

ERROR_LINES = 40
BUILD_MEMORY_GB = 32.0


@dataclass(frozen=True)
class Built:
    """A candidate's file where it was built, and the compiler's words if that failed."""

    path: Path
    error: str | None = None
    output: str = ""


class Builds:
    """Builds into folders below `root`."""

    def __init__(self, root: Path, device: Device, forkserver: Forkserver) -> None:
        self._root = root
        self._architecture = device.architecture if device.kind == "cuda" else None
        self._forkserver = forkserver
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._done: set[str] = set()

    def build(self, candidate: Candidate, limits: Limits) -> Built:
        """Build, or find it built. Raises ChildFailed when the build hangs or takes too much memory."""
        tools = language(candidate.language)
        key = digest(candidate.source, tools.toolchain(), self._architecture or "cpu")
        folder = self._root / key
        path = folder / "candidate.py"
        with self._locks[key]:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(candidate.source)
            if key in self._done:
                return Built(path)
            built = self._import_without_device(
                path, tools.environment(folder, self._architecture), limits
            )
            if built.error is None:
                self._done.add(key)
            return built

    def _import_without_device(
        self, path: Path, environment: dict[str, str], limits: Limits
    ) -> Built:
        child = self._forkserver.fork(
            path.parent,
            child_environment(path.parent, {**environment, "CUDA_VISIBLE_DEVICES": ""}),
            memory_gb=BUILD_MEMORY_GB,
            bound_address_space=False,
            output_kb=limits.output_kb,
        )
        error = None
        try:
            child.ask({"do": "import", "path": str(path), "class": "ModelNew"}, limits.build_s)
        except ChildFailed as failure:
            if failure.kind != "crashed":
                raise
            error = failure.error
        finally:
            output = child.close()
        if error is None:
            return Built(path)
        return Built(path, first_errors(error if _speaks(error) else f"{error}\n{output}"), output)


def first_errors(text: str) -> str:
    """A compiler's own words from the first error on, without the command lines before it."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if re.search(r"\b(fatal )?error\s*[:#]", line)]
    if not starts:
        return "\n".join(lines[:ERROR_LINES])
    head = [lines[0]] if starts[0] > 0 else []
    return "\n".join([*head, *lines[starts[0] : starts[0] + ERROR_LINES]])


def _speaks(error: str) -> bool:
    """Whether the exception itself carries the compiler's words; otherwise they were printed."""
    return "error:" in error or "Error" in error.split(":", 1)[0]
