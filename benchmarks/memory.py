"""Measures the peak memory of a judge and all its children on a CPU, relative to a problem's inputs or outputs.

    python benchmarks/memory.py [--megabytes 160]

Uses three problems that are too large to keep anything between candidates: one with as many inputs as outputs, one that
reduces its inputs, and one that expands a small input. Shared memory counts once (PSS).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import threading
import time
from pathlib import Path

from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import local
from support.candidates import as_candidate
from support.processes import family

SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {body}

def get_inputs():
    return [torch.rand({rows}, 1024)]

def get_init_inputs():
    return []
"""

BODIES = {
    "as many inputs as outputs": "torch.relu(x - 0.5)",
    "inputs alone": "x.sum(dim=0)",
    "outputs alone": "x.expand({rows}, 1024).clone()",
}
POLL_S = 0.005
_SHARE = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=160)
    options = parser.parse_args()
    rows = options.megabytes * 256
    print("| problem | status | at most, of one side | MB |")
    print("|---|---|---|---|")
    for name, body in BODIES.items():
        own = 1 if name == "outputs alone" else rows
        source = SOURCE.format(body=body.format(rows=rows), rows=own)
        status, peak_mb = asyncio.run(_peak(Problem(name=name, source=source)))
        print(f"| {name} | {status} | {peak_mb / options.megabytes:.1f} | {peak_mb:.0f} |")


async def _peak(problem: Problem) -> tuple[str, float]:
    """The status of the reference as its own candidate, and the peak memory beyond an idle judge in MiB."""
    executor = local("cpu", Limits(timing_budget_s=0.5))
    small = problem.model_copy(update={"source": SOURCE.format(body="x", rows=1)})
    await executor.describe(small)
    (judge,) = executor._judges
    assert judge.process is not None
    watch = _Watch(judge.process.pid)
    same = problem.source.replace("class Model(", "class ModelNew(")
    try:
        evaluation = await executor.evaluate(problem, as_candidate("cpp", same))
        return evaluation.status, watch.most_mb()
    finally:
        await executor.close()


class _Watch:
    """Samples the memory of a process and its descendants continuously."""

    def __init__(self, root: int) -> None:
        self._root, self._most, self._stopped = root, 0.0, threading.Event()
        self._first = _shared_mb(family([root]))
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def most_mb(self) -> float:
        self._stopped.set()
        self._thread.join()
        return self._most - self._first

    def _look(self) -> None:
        while not self._stopped.is_set():
            self._most = max(self._most, _shared_mb(family([self._root])))
            time.sleep(POLL_S)


def _shared_mb(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            found = _SHARE.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
            total += int(found[1]) if found else 0
    return total / 1024


if __name__ == "__main__":
    main()
