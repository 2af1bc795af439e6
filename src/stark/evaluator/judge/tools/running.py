"""Runs a candidate by itself under a tool (NVIDIA's, or AddressSanitizer), in a sandbox.

The tool opens many files and talks to its program through sockets. So the tool itself gets no full
sandbox: it is only cut off from the network and limited in resources. The tool works in a new
folder to which no candidate ever wrote, because files in the working, home and temporary folders
decide what tools and interpreters load. The tool starts the program `candidate/under_tool.py`.
This program first locks its own sandbox, then enters the candidate's folder and environment, and
only then runs the candidate's code.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stark.core.judging import Limits
from stark.evaluator.candidate import under_tool
from stark.evaluator.candidate.confine import Place
from stark.evaluator.judge.building.builds import Built
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import CONSTRUCTION_SEED
from stark.evaluator.judge.processes.allowance import Allowance
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.processes.folders import remove
from stark.evaluator.judge.processes.forkserver import BEFORE_IMPORTS, Forkserver
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.running import visible
from stark.evaluator.judge.shared import DEVICE_SHARE, in_child
from stark.languages import language
from stark.languages.tools import of_cuda

TOOL_GB = 24.0
"""Gigabytes of host memory for a tool itself. A memory checker needs much: it keeps a state for every byte."""

IMPORTS_S, POLL_S = 20.0, 0.02
"""Maximum number of seconds to wait for a program's imports, and seconds between two looks."""

LONGEST = 400
"""Maximum number of characters of a finding, and of the reason why a tool failed."""

MAX_LOG_CHARS = 4 << 20
"""Maximum number of characters read from a log. A usual log has some ten thousand characters."""


class NotRun(Exception):
    """A tool failed or gave no clear result. The message is a clause that ends a longer sentence."""

    def __init__(self, reason: str, ended: bool = False) -> None:
        super().__init__(reason)
        self.ended = ended
        """Whether the tool had to be killed. If so, the next tool would probably have to be killed too."""


@dataclass(frozen=True)
class Target:
    """A correct candidate and what is needed to run it again."""

    built: Built
    language: str
    prepared: PreparedReference
    limits: Limits


@dataclass(frozen=True)
class Ran:
    """The outcome of a tool's run."""

    log: str
    """The tool's own log, without the program's output."""

    printed: str
    code: int

    def why(self) -> str:
        """Why the tool failed: the program's last error, else the tool's first, else a line of the output or the exit code."""
        stripped = [line.strip("= ") for line in self.log.splitlines() if "SUMMARY:" not in line]
        lines = [line for line in stripped if line]
        printed = [line.strip() for line in self.printed.splitlines() if line.strip()]
        errors = [line for line in lines if "rror" in line][:1]
        raised = [line for line in printed if "rror" in line]
        said = raised or errors or lines or printed or [f"it exited with code {self.code}"]
        return printable(said[-1])[:LONGEST]

    def require_clear(self, others: Sequence[str], where: str) -> None:
        """Raise NotRun if there were `others`, errors that are not the candidate's, or if the program failed."""
        if others:
            reason = f"it reported errors only in {where}: {others[0]}"
            raise NotRun(printable(reason)[:LONGEST])
        if self.code != 0:
            raise NotRun(f"the program failed under the tool: {self.why()}")


def found(tool: str) -> str:
    """The path of a tool. Raises NotRun if it is not installed."""
    path = of_cuda(tool)
    if path is None:
        raise NotRun(f"{tool} is neither on PATH nor in the CUDA toolkit")
    return path


class Desk:
    """One tool, which has started a process that waits for its program. That process takes seconds to import torch."""

    def __init__(
        self,
        command: Callable[[Path], Sequence[str]],
        server: Forkserver,
        device: torch.device,
        limits: Limits,
        variables: Mapping[str, str] | None = None,
        output_kb: int | None = None,
        modules: Sequence[str] = (),
    ) -> None:
        """`command` returns the tool's command line for a given log file. Raises NotRun.

        `output_kb` replaces the limit of the kept output, for a tool that reports in the program's output. The process
        imports `modules` while it waits.
        """
        self._folder = Path(tempfile.mkdtemp(dir=server.folder))
        self._log, self._scratch = self._folder / "log", self._folder / "scratch"
        self._scratch.mkdir()
        environment = {**_environment(self._folder, device), **BEFORE_IMPORTS, **(variables or {})}
        self._allowed = Allowance(
            Place(str(self._folder), environment),
            memory_gb=limits.memory_gb + TOOL_GB,
            output_kb=output_kb or limits.output_kb,
        )
        self._request = self._folder / "request.json"
        program = ["-P", "-s", "-m", under_tool.__name__, str(self._request), *modules]
        line = [*command(self._log), sys.executable, *program]
        self._child = server.fork(self._allowed, command=line)

    def await_imports(self) -> None:
        """Wait until the process only waits, so that it disturbs no program that is timed."""
        ready = self._request.with_suffix(under_tool.READY)
        deadline = time.monotonic() + IMPORTS_S
        while not (ready.exists() or self._child.has_ended()) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def run(
        self,
        target: Target,
        warm: int,
        limit_s: float,
        changed: Mapping[str, str | None] | None = None,
        guarded: bool = False,
        abrupt: bool = False,
    ) -> Ran:
        """Run a candidate. `warm` calls precede the profiled call. Raises NotRun, for instance after `limit_s` seconds.

        `changed` has environment variables to set or, with None, to remove before the candidate's code runs. With
        `guarded`, the candidate's inputs lie in memory with guards around it. With `abrupt`, its process exits without
        cleaning up, which is faster and gives no tool a chance to report anything at the end.
        """
        prepared, built = target.prepared, target.built
        self._allowed.watched.append(built.work)
        environment = {
            **_environment(built.work, prepared.device),
            **language(target.language).environment(built.work, prepared.architecture),
            **(changed or {}),
        }
        gradients = prepared.program.differentiation
        asked: dict[str, Any] = {
            "problem": str(prepared.program.path),
            "program": str(built.source),
            "device": in_child(prepared.device),
            "memory_fraction": DEVICE_SHARE,
            "seed": CONSTRUCTION_SEED,
            "warm": warm,
            "guarded": guarded,
            "abrupt": abrupt,
            "layers": prepared.forkserver.layers(),
            "folder": str(built.work),
            "scratch": str(self._scratch),
            "environment": environment,
            **({"gradients": None, "cotangents": []} if gradients is None else gradients.request()),
        }
        part = self._request.with_suffix(".part")
        part.write_text(json.dumps(asked))
        part.rename(self._request)
        try:
            code = self._child.finish(limit_s)
        except ChildFailed as failure:
            raise NotRun(failure.error, ended=True) from failure
        finally:
            printed = self._child.close()
        return Ran(built.without_paths(_read(self._log)), built.without_paths(printed), code)

    def close(self) -> None:
        """End the tool and its process."""
        self._child.close()
        remove(self._folder)  # candidates wrote below it, so a plain rmtree may fail


def _read(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_LOG_CHARS)


def _environment(folder: Path, device: torch.device) -> dict[str, str]:
    given = child_environment(folder, {"CUDA_VISIBLE_DEVICES": visible(device)})
    paths = filter(None, given.get("PYTHONPATH", "").split(os.pathsep))
    return {**given, "PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in paths)}
