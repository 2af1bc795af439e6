"""A kernel's hardware counters, as Nsight Compute reads them while the kernel runs alone with cold caches."""

from __future__ import annotations

from pydantic import Field

from stark.core.base import Frozen

BUSY = 0.6
"""Share of its peak from which a unit limits a kernel."""

STALLS = tuple(
    "long_scoreboard short_scoreboard mio_throttle lg_throttle math_pipe_throttle barrier wait drain no_instruction".split()
)
"""The stalls that are read, by NVIDIA's names: reasons why a warp waits."""


class KernelCounters(Frozen):
    """One kernel in one call; of several executions the longest. A share is None if the device did not report it."""

    name: str
    time_ms: float
    """All its executions, each with a cold cache and under the profiler."""

    share: float
    """Of the time of all kernels."""

    dram_bytes: float | None = None
    """Read and written by all its executions, each with a cold cache."""

    dram: float | None = None
    """Share of the peak bandwidth."""

    issue: float | None = None
    """Share of the peak of the busiest unit in the multiprocessors."""

    tensor: float | None = None
    """Share of cycles in which the tensor cores were active."""

    occupancy: float | None = None
    """Achieved: active warps relative to the most that a multiprocessor can hold."""

    l1_hits: float | None = None
    l2_hits: float | None = None
    loads_used: float | None = None
    """Share of the bytes moved by loads from global memory, in sectors of 32, that the kernel asked for."""

    stores_used: float | None = None
    bank_conflicts: float | None = None
    """Share of shared-memory accesses that were repeated because of a conflict."""

    stalls: dict[str, float] = Field(default={})
    """Share of a warp's time between two instructions, by stall."""
