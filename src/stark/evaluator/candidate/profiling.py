"""Runs a few calls of a program under PyTorch's profiler and summarizes them.

Uses `torch.autograd.profiler`, which starts in milliseconds. Starting `torch.profiler` imports all
of Inductor, which takes 0.9 s.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler

from stark.evaluator.candidate.trace import MARK, device_summary, host_summary

WARM = "stark.warm"
"""The annotation around the call that warms up the profiler."""

SCHEDSTAT = Path("/proc/thread-self/schedstat")
"""Linux's scheduling statistics of the calling thread."""

BYTES_PER_SPILL = 4
"""Bytes per register. Triton counts spills in registers of this size."""

MIN_CLOCKED_S = 0.02
"""Busy cores are measured over calls that together take at least this many seconds. Shorter measurements are
inexact: if a process has a limit on its processor time, Linux may update the used time only every few milliseconds."""


def profiled(
    call: Callable[[], object], prepare: Callable[[], object], device: torch.device, calls: int
) -> dict[str, Any]:
    """Profile `calls` calls and summarize them. Raises what the calls raise.

    `prepare` runs before each call and is not counted. If `calls` exceeds 1, an additional first call
    warms up the profiler. The judge sets `calls` to 1 only if calls are slow and the program is warm.
    """
    on_device = device.type == "cuda"
    wait: Callable[[], None] = torch.cuda.synchronize if on_device else lambda: None
    clocked = []
    os.environ["KINETO_LOG_LEVEL"] = "99"  # the profiler would print beside the program
    with tempfile.TemporaryDirectory() as folder:
        with profiler.profile(use_device="cuda" if on_device else None, use_kineto=True) as profile:
            with profiler.record_function(WARM):
                if calls > 1:
                    call()
            for _ in range(calls):
                prepare()
                wait()
                with profiler.record_function(MARK):
                    clocked.append(_clocked(call))
                    wait()
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text("utf-8", "replace"))["traceEvents"]
    if not on_device:
        return {**host_summary(events), "busy_cores": _busy_cores(call, clocked)}
    summary, spills = device_summary(events), _triton_spills()
    for entry in summary["entries"]:
        if entry["launch"] is not None:
            entry["launch"]["spilled_bytes"] = spills.get(entry["name"])
    return {**summary, "busy_cores": None}


def _clocked(call: Callable[[], object]) -> tuple[float, float]:
    """Make a call. Returns the seconds in which the calling thread did not wait for a core, and those of all processors."""
    waited, wall, processor = _waited_s(), time.perf_counter(), time.process_time()
    call()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return max(wall - (_waited_s() - waited), wall / 10), processor


def _busy_cores(call: Callable[[], object], clocked: list[tuple[float, float]]) -> float:
    """The mean number of busy cores in these calls, and in further calls if these were too short."""
    while sum(seconds for seconds, _ in clocked) < MIN_CLOCKED_S:
        clocked.append(_clocked(call))
    return sum(processor for _, processor in clocked) / sum(seconds for seconds, _ in clocked)


def _waited_s() -> float:
    """Seconds that this thread has waited for a core so far; 0 if Linux does not report it."""
    try:
        return int(SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _triton_spills() -> dict[str, int]:
    """Maps each loaded Triton kernel's name to its spilled bytes per thread (the maximum if a name occurs twice)."""
    kind = getattr(sys.modules.get("triton.compiler.compiler"), "CompiledKernel", None)
    spills: dict[str, int] = {}
    for found in gc.get_objects() if kind is not None else ():
        if type(found) is kind:
            name, count = vars(found).get("name"), vars(found).get("n_spills")
            if isinstance(name, str) and isinstance(count, int):
                spills[name] = max(spills.get(name, 0), BYTES_PER_SPILL * count)
    return spills
