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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    used = HostTime()
    with _discarded_output(), tempfile.TemporaryDirectory() as folder:
        with profiler.profile(use_device="cuda" if on_device else None, use_kineto=True) as profile:
            with profiler.record_function(WARM):
                if calls > 1:
                    call()
            for _ in range(calls):
                prepare()
                _synchronize(device)
                with profiler.record_function(MARK):
                    used.during(call)
                    _synchronize(device)
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text("utf-8", "replace"))["traceEvents"]
    return {
        **(device_summary(events) if on_device else host_summary(events)),
        "wall_s": used.wall_s,
        "busy_cores": None if on_device else _busy_cores(call, used),
        "spills": _triton_spills(),
    }


@dataclass
class HostTime:
    """Host time used by the calls so far."""

    wall_s: float = 0.0
    """Elapsed time, in seconds."""

    processor_s: float = 0.0
    """Processor time of all threads together, in seconds."""

    waited_s: float = 0.0
    """Seconds that the calling thread waited for a core."""

    def during(self, call: Callable[[], object]) -> None:
        """Make one call and add its times."""
        waited = _waited_s()
        wall, processor = time.perf_counter(), time.process_time()
        call()
        self.wall_s += time.perf_counter() - wall
        self.processor_s += time.process_time() - processor
        self.waited_s += _waited_s() - waited

    @property
    def busy_cores(self) -> float:
        """Mean number of busy cores while the calling thread was running."""
        return self.processor_s / max(self.wall_s - self.waited_s, self.wall_s / 10)


def _busy_cores(call: Callable[[], object], used: HostTime) -> float:
    """The mean number of busy cores during the profiled calls, or of new calls if the profiled ones were too short."""
    if used.wall_s < MIN_CLOCKED_S:
        used = HostTime()
    while used.wall_s < MIN_CLOCKED_S:
        used.during(call)
    return used.busy_cores


def _waited_s() -> float:
    """Seconds that this thread has waited for a core so far; 0 if Linux does not report it."""
    try:
        return int(SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _discarded_output() -> Iterator[None]:
    """Discard output while the profiler runs: the profiler prints to stdout, which belongs to the program."""
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for target in (1, 2):
        os.dup2(nowhere, target)
    try:
        yield
    finally:
        for source, target in zip(kept, (1, 2), strict=True):
            os.dup2(source, target)
        for descriptor in (nowhere, *kept):
            os.close(descriptor)


def _triton_spills() -> dict[str, int]:
    """Maps each loaded Triton kernel's name to its spilled bytes per thread (the maximum if a name occurs twice)."""
    compiler = sys.modules.get("triton.compiler.compiler")
    kind = getattr(compiler, "CompiledKernel", None)
    spills: dict[str, int] = {}
    if kind is None:
        return spills
    for found in gc.get_objects():
        if type(found) is kind:
            name, count = vars(found).get("name"), vars(found).get("n_spills")
            if isinstance(name, str) and isinstance(count, int):
                spills[name] = max(spills.get(name, 0), BYTES_PER_SPILL * count)
    return dict(list(spills.items())[:64])
