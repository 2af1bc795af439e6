"""Has the judge time identical programs repeatedly, to count how often it claims that one is faster."""

from __future__ import annotations

import time
from collections.abc import Sequence

from clocks.findings import Alike, Compared, Findings
from clocks.programs import Size
from stark.core.errors import StarkError
from stark.core.evaluation import Correct, Effort
from stark.core.measurement import Measurement, speedup
from stark.evaluator.executors import Executor
from stark.explain.evaluation import evidence


async def measure(
    executor: Executor,
    device: str,
    chosen: Sequence[Size],
    repeats: int,
    effort: Effort,
    deadline: float,
    findings: Findings,
) -> None:
    """Measure every size up to `repeats` times, until the deadline."""
    left = list(chosen)
    for _ in range(repeats):
        for size in list(left):
            if time.monotonic() > deadline:
                return
            found = await judged(executor, device, size, findings, effort)
            if found is None:
                left.remove(size)
                continue
            row = alike(str(size), effort, found)
            findings.alike.append(row)
            findings.save()
            print(
                f"{size!s:8} {row.latency_ms:9.4g} ms  {row.ratio:.4f} [{row.low:.4f}, {row.high:.4f}]  "
                f"{row.rounds} rounds, {row.device_s:.2f} s",
                flush=True,
            )


async def judged(
    executor: Executor, device: str, size: Size, findings: Findings, effort: Effort = "search"
) -> Correct | None:
    """Judge the program against itself once; records a failure and returns None if that fails."""
    try:
        found = await executor.evaluate(size.problem, size.candidate(device), effort)
    except StarkError as error:
        findings.fail(f"{size.words}: {error}")
        return None
    if isinstance(found, Correct):
        return found
    findings.fail(f"{size.words}: {found.status}: {evidence(found)[-300:]}")
    return None


def alike(size: str, effort: Effort, found: Correct) -> Alike:
    """The row for one window."""
    reported = found.speedup_vs()
    exact = speedup("eager", _exact(found.references["eager"]), _exact(found.candidate))
    return Alike(
        size=size,
        effort=effort,
        latency_ms=found.latency_ms,
        ratio=reported.ratio,
        low=reported.low,
        high=reported.high,
        exact_low=exact.low,
        exact_high=exact.high,
        rounds=len(found.candidate.samples_ms),
        device_s=found.seconds.get("time", 0.0),
    )


def compared(size: str, busy: bool, found: Correct) -> Compared:
    """The window as a row of the comparison of methods."""
    return Compared(
        method="judge",
        size=size,
        busy=busy,
        reference_ms=found.references["eager"].latency_ms,
        candidate_ms=found.latency_ms,
        ratio=found.speedup_vs().ratio,
        won=found.speedup_vs().low > 1,
    )


def _exact(measurement: Measurement) -> Measurement:
    return measurement.model_copy(update={"resolution_ms": 0.0})
