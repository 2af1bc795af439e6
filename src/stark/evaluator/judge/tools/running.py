"""Runs a candidate by itself under a tool, in a sandbox.

The tool itself is only kept from the network and bounded: it talks to the program that it runs through sockets, and opens files all the
time. The program locks itself up before any of the candidate's code runs, as everywhere else (`candidate/under_tool.py`). What the
tool writes lies where the candidate cannot write.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stark.evaluator.judge.building.builds import Built
from stark.evaluator.judge.evaluate import architecture_of
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import CONSTRUCTION_SEED
from stark.evaluator.judge.processes.children import Allowance, ChildFailed
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.running import visible
from stark.evaluator.judge.shared import DEVICE_SHARE
from stark.evaluator.protocol import Limits
from stark.languages import language
from stark.languages.tools import of_cuda

MEMORY_GB = 64.0
"""Host memory of the tool and the program: a checker keeps notes on every byte of the device."""

SAID = 300


class NotRun(Exception):
    """A tool did not run to its end; says why, as the end of a sentence."""


@dataclass(frozen=True)
class Target:
    """A candidate that was found correct, and what it takes to run it once more."""

    built: Built
    language: str
    prepared: PreparedReference
    limits: Limits


@dataclass(frozen=True)
class Ran:
    """How a tool ended."""

    log: str
    """What it wrote, without what the program printed."""

    printed: str
    code: int

    def why(self) -> str:
        """Why the tool did not do its work, as far as that is told: the program's last error, or the tool's first one."""
        told = [line.strip("= ") for line in self.log.splitlines() if "SUMMARY:" not in line]
        lines = [line for line in told if line]
        printed = [line.strip() for line in self.printed.splitlines() if line.strip()]
        errors = [line for line in lines if "rror" in line][:1]
        raised = [line for line in printed if "rror" in line]
        said = raised or errors or lines or printed or [f"it ended with code {self.code}"]
        return printable(said[-1])[:SAID]


def found(tool: str) -> str:
    """Where a tool lies. Raises NotRun."""
    path = of_cuda(tool)
    if path is None:
        raise NotRun(f"there is no {tool} on PATH or in the CUDA toolkit")
    return path


def run_under(
    command: Callable[[Path], Sequence[str]],
    target: Target,
    warm: int,
    limit_s: float,
    variables: dict[str, str] | None = None,
) -> Ran:
    """Run a candidate under the tool that `command` gives for a log file; `warm` calls precede the one that is marked.

    Raises NotRun.
    """
    built, prepared = target.built, target.prepared
    with tempfile.TemporaryDirectory(dir=prepared.forkserver.folder) as folder:
        request, log = Path(folder) / "request.json", Path(folder) / "log"
        request.write_text(json.dumps(_request(target, warm)))
        program = ["-P", "-m", "stark.evaluator.candidate.under_tool", str(request)]
        child = prepared.forkserver.fork(
            _allowance(target, variables or {}),
            command=[*command(log), sys.executable, *program],
        )
        try:
            code = child.finish(limit_s)
        except ChildFailed as failure:
            raise NotRun(failure.error) from failure
        finally:
            printed = child.close()
        text = log.read_text("utf-8", "replace") if log.exists() else ""
        return Ran(text.replace(f"{built.folder}/", ""), printed, code)


def _request(target: Target, warm: int) -> dict[str, object]:
    prepared, built = target.prepared, target.built
    return {
        "problem": str(prepared.program.path),
        "program": str(built.source),
        "device": str(prepared.device),
        "memory_fraction": DEVICE_SHARE,
        "seed": CONSTRUCTION_SEED,
        "warm": warm,
        "layers": prepared.forkserver.layers(on_device=prepared.device.type == "cuda"),
        "folder": str(built.work),
        "readable": [str(built.source)],
    }


def _allowance(target: Target, variables: dict[str, str]) -> Allowance:
    built, prepared = target.built, target.prepared
    extra = language(target.language).environment(built.work, architecture_of(prepared))
    given = {**extra, "CUDA_VISIBLE_DEVICES": visible(), **variables}
    return Allowance(
        built.work,
        child_environment(built.work, given),
        memory_gb=MEMORY_GB,
        output_kb=target.limits.output_kb,
        on_device=prepared.device.type == "cuda",
    )
