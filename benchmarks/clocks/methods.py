"""Compares the judge with the usual methods on identical programs, with and without a busy neighbour process.

A run of the usual methods is a new process that times both programs one after the other, as those methods do. A run of
the judge starts a new process for the candidate and keeps the reference's.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from clocks import alike
from clocks.findings import Compared, Findings
from clocks.programs import Size
from stark.core.errors import MachineError
from stark.evaluator.executors import Executor

HERE = Path(__file__).parent
RUN_LIMIT_S = 150.0


async def measure(
    executor: Executor,
    device: str,
    chosen: Sequence[Size],
    runs: int,
    deadline: float,
    findings: Findings,
    kernelbench: Path | None,
) -> None:
    """Measure up to `runs` times on a quiet and on a busy device, until the deadline."""
    for run in range(runs):
        for busy in (False, True):
            if time.monotonic() > deadline:
                return
            try:
                rows = await _one_run(executor, device, chosen, busy, findings, kernelbench)
            except MachineError as error:
                findings.fail(str(error))
                continue
            findings.compared += rows
            findings.save()
            for row in rows:
                print(
                    f"run {run + 1} {'busy ' if busy else 'quiet'} {row.size:8} {row.method:12} "
                    f"{row.candidate_ms:9.4g} ms  {row.ratio:.4f}",
                    flush=True,
                )


async def _one_run(
    executor: Executor,
    device: str,
    chosen: Sequence[Size],
    busy: bool,
    findings: Findings,
    kernelbench: Path | None,
) -> list[Compared]:
    with neighbour(device) if busy else contextlib.nullcontext():
        rows = others(device, chosen, busy, kernelbench, findings)
        for size in chosen:
            found = await alike.judged(executor, device, size, findings)
            if found is not None:
                rows.append(alike.compared(str(size), busy, found))
    return rows


def others(
    device: str, chosen: Sequence[Size], busy: bool, kernelbench: Path | None, findings: Findings
) -> list[Compared]:
    """Run every other method once in a new process, and record failures."""
    asked = {
        "device": device,
        "programs": {str(size): size.problem.source for size in chosen},
        "kernelbench": str(kernelbench) if kernelbench else None,
    }
    command = [sys.executable, "-P", str(HERE / "other_methods.py"), json.dumps(asked)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S)
    except subprocess.TimeoutExpired:
        findings.fail(f"the other methods did not finish within {RUN_LIMIT_S:g} s")
        return []
    rows = []
    for line in done.stdout.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        if "failed" in row:
            findings.fail(f"{row['method']} at {row['size']}: {row['failed']}")
            continue
        ratio = row["reference_ms"] / row["candidate_ms"]
        rows.append(Compared(busy=busy, ratio=ratio, **row))
    if done.returncode:
        findings.fail(f"the other methods exited with {done.returncode}: {done.stderr[-300:]}")
    return rows


@contextlib.contextmanager
def neighbour(device: str) -> Iterator[None]:
    """Start a process that uses the device in bursts, and wait until it runs. Raises MachineError."""
    command = [sys.executable, "-P", str(HERE / "neighbour.py"), device]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "at work\n":
                raise MachineError("the neighbour process ended before it started its work")
            yield
        finally:
            process.kill()
