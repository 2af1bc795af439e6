"""Runs a few calls of a program under PyTorch's profiler and summarizes them.

Uses `torch.autograd.profiler`, which starts in milliseconds. Starting `torch.profiler` imports all
of Inductor, which takes 0.9 s.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from timeit import timeit
from typing import Any

import torch
from torch.autograd import profiler

from stark.evaluator.candidate.compiled import scalar_calls
from stark.evaluator.candidate.trace import MARK, device_summary, host_summary

WARM = "stark.warm"
"""The annotation around the call that warms up the profiler."""

BYTES_PER_SPILL = 4
"""Bytes per register. Triton counts spills in registers of this size."""

MIN_CLOCKED_S = 0.03
"""Calls are clocked for at least this many seconds. Shorter measurements are inexact: Linux may update the used processor
time only every few milliseconds."""

MAX_ALONE_S = 0.5
"""Nothing is called with one thread if the three batches could take longer."""


def profiled(
    call: Callable[[], object], prepare: Callable[[], object], device: torch.device, calls: int
) -> dict[str, Any]:
    """Profile `calls` calls and summarize them. Raises what the calls raise.

    `prepare` runs before each call and is not counted. If `calls` exceeds 1, additional first calls
    warm up the program and the profiler. The judge sets `calls` to 1 only if calls are slow and the program is warm.
    """
    on_device = device.type == "cuda"
    # Before the profiler, whose own memory changes where results lie, and with it how much memory is new.
    cores = {} if on_device else _cores(call, slow=calls == 1)
    wait: Callable[[], None] = torch.cuda.synchronize if on_device else lambda: None
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
                    call()
                    wait()
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text("utf-8", "replace"))["traceEvents"]
    if not on_device:
        return {**host_summary(events), **cores, "scalar_calls": scalar_calls(Path.cwd())}
    summary, spills = device_summary(events), _triton_spills()
    for entry in summary["entries"]:
        if entry["launch"] is not None:
            entry["launch"]["spilled_bytes"] = spills.get(entry["name"])
    return summary


def _cores(call: Callable[[], object], slow: bool) -> dict[str, float | None]:
    """How calls use a CPU's cores. A slow call is clocked by itself, others in batches, since reading clocks takes time too.

    A thread that waits for a core, because other programs use it, counts as busy.
    """
    batch = 1 if slow else max(1, int(MIN_CLOCKED_S / 5 / timeit(call, number=1)))
    waited, before = _waited_s(), resource.getrusage(resource.RUSAGE_SELF)
    seconds = [timeit(call, number=batch)]
    while sum(seconds) < MIN_CLOCKED_S:
        seconds.append(timeit(call, number=batch))
    waited, after = _waited_s() - waited, resource.getrusage(resource.RUSAGE_SELF)
    system = after.ru_stime - before.ru_stime
    processor = after.ru_utime - before.ru_utime + system
    return {
        "busy_cores": (processor + max(waited, 0.0)) / sum(seconds),
        "system_share": system / processor if processor else 0.0,
        "page_faults": (after.ru_minflt - before.ru_minflt) / len(seconds) / batch,
        "alone": _alone(call, batch, min(seconds)),
    }


def _alone(call: Callable[[], object], batch: int, seconds: float) -> float | None:
    """The time of a batch with one thread, divided by `seconds`, the time with all; None if it is not measured."""
    threads = torch.get_num_threads()
    if threads == 1 or 3 * threads * seconds > MAX_ALONE_S:
        return None
    torch.set_num_threads(1)
    try:
        return min(timeit(call, number=batch) for _ in range(3)) / seconds
    finally:
        torch.set_num_threads(threads)


def _waited_s() -> float:
    """Seconds that all threads have waited for a core so far; 0 if Linux does not report it."""
    try:
        threads = Path("/proc/self/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[1]) for each in threads) / 1e9
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
