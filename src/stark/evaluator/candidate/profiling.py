"""Some calls of a program under PyTorch's profiler, summed up.

It uses `torch.autograd.profiler` and not `torch.profiler`, whose start imports the whole of Inductor: 0.9 s where
this takes milliseconds.
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
SCHEDULED = Path("/proc/thread-self/schedstat")
BYTES_PER_SPILL = 4
CLOCKED_S = 0.02
"""A process whose processor time is bounded learns it every few milliseconds only, so less than this tells nothing."""


def profiled(
    call: Callable[[], object], prepare: Callable[[], object], device: torch.device, calls: int
) -> dict[str, Any]:
    """The summary of so many calls; `prepare` comes before each and does not count. Raises what they raise.

    A call before them warms up the profiler, unless only one is asked for: then calls are slow and warm.
    """
    on_device = device.type == "cuda"
    used = Used()
    with _silence(), tempfile.TemporaryDirectory() as folder:
        with profiler.profile(use_device="cuda" if on_device else None, use_kineto=True) as profile:
            with profiler.record_function(WARM):
                if calls > 1:
                    call()
            for _ in range(calls):
                prepare()
                _settle(device)
                with profiler.record_function(MARK):
                    used.during(call)
                    _settle(device)
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
class Used:
    """What calls used of the host so far."""

    wall_s: float = 0.0
    processor_s: float = 0.0
    """Of all threads together."""

    waited_s: float = 0.0
    """For a core, by the thread that calls."""

    def during(self, call: Callable[[], object]) -> None:
        """Add one call."""
        waited = _waited_s()
        wall, processor = time.perf_counter(), time.process_time()
        call()
        self.wall_s += time.perf_counter() - wall
        self.processor_s += time.process_time() - processor
        self.waited_s += _waited_s() - waited

    @property
    def busy_cores(self) -> float:
        """How many cores worked at a time, while the calling thread had one."""
        return self.processor_s / max(self.wall_s - self.waited_s, self.wall_s / 10)


def _busy_cores(call: Callable[[], object], used: Used) -> float:
    """Of these calls or, where they were too short, of more."""
    if used.wall_s < CLOCKED_S:
        used = Used()
    while used.wall_s < CLOCKED_S:
        used.during(call)
    return used.busy_cores


def _waited_s() -> float:
    """How long this thread has waited for a core so far; 0 where the kernel does not say."""
    try:
        return int(SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _silence() -> Iterator[None]:
    """The profiler talks on standard output, which is the program's."""
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
    """Bytes that each loaded Triton kernel spills per thread, by its name; where several share it, the most."""
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
