"""Building candidates: each in a child without a device, into a folder named by what it is built from.

Builds of different candidates run side by side; the same candidate is built once. The folder's name is the
digest of source, toolchain and architecture, so a later judge finds everything compiled.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stark.core.base import digest
from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.evaluator.judge.children import ChildFailed, Forkserver, child_environment
from stark.evaluator.judge.complaints import first_errors
from stark.evaluator.protocol import Limits
from stark.languages import language

BUILD_MEMORY_GB = 32.0


@dataclass(frozen=True)
class Built:
    """A candidate's file where it was built, and the compiler's words if that failed."""

    path: Path
    error: str | None = None
    output: str = ""


class Builds:
    """Builds into folders below `root`. Several judges may share one root."""

    def __init__(self, root: Path, device: Device, forkserver: Forkserver) -> None:
        self._root = root
        self._architecture = device.architecture if device.kind == "cuda" else None
        self._target = f"{device.name} {device.architecture}"
        self._forkserver = forkserver
        root.mkdir(parents=True, exist_ok=True)

    def build(self, candidate: Candidate, limits: Limits) -> Built:
        """Build, or find it built. Raises ChildFailed when the build hangs or takes too much memory."""
        tools = language(candidate.language)
        key = digest(candidate.source, tools.toolchain(), self._target)
        folder, done = self._root / key, self._root / f"{key}.built"
        path = folder / "candidate.py"
        with _locked(self._root / f"{key}.lock"):
            if done.exists() and path.exists():
                return Built(path)
            # What an interrupted build left, its own lock files above all, would stop this one.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            path.write_text(candidate.source)
            built = self._import_without_device(
                path, candidate.source, tools.environment(folder, self._architecture), limits
            )
            if built.error is None:
                done.touch()
            return built

    def _import_without_device(
        self, path: Path, source: str, environment: dict[str, str], limits: Limits
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
        said = error if _speaks(error) else f"{error}\n{output}"
        return Built(path, first_errors(said.replace(f"{path.parent}/", ""), source), output)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock between threads and processes; it ends with the process that holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _speaks(error: str) -> bool:
    """Whether the exception itself carries the compiler's words; otherwise they were printed."""
    return "error:" in error or "Error" in error.split(":", 1)[0]
