"""Where the time of one call goes, according to a profiler.

A program is profiled in its own, untrusted process, so no status and no speedup depends on a profile.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stark.core.base import Frozen

OUTSIDE = "outside PyTorch's operators"
"""Name of the CPU-profile step that sums time in custom native code and Python."""

BUSY = 0.6
"""Share of its peak from which a unit limits a kernel."""

STALLS = tuple(
    "long_scoreboard short_scoreboard mio_throttle lg_throttle math_pipe_throttle barrier wait drain no_instruction".split()
)
"""The stalls that are read, by NVIDIA's names: reasons why a warp waits."""


class Launch(Frozen):
    """How a kernel was launched on a GPU: with how many registers per thread, and shared bytes and threads per block."""

    registers: int
    shared_bytes: int
    blocks: int
    threads: int
    occupancy: float | None = None
    """A fraction, estimated by the profiler: 0 if it cannot estimate it, None if it reports none."""

    spilled_bytes: int | None = None
    """Bytes of each thread's registers that are kept in memory; None if unknown."""


class Step(Frozen):
    """One kernel of a GPU, or one operator on a CPU."""

    name: str
    count: float
    """Executions per call."""

    time_ms: float
    """All executions in a call, without nested operators."""

    share: float
    """Share of the time of all steps."""

    own: bool
    """Whether it is custom code, not PyTorch's or a library's."""

    operator: str | None = None
    """The PyTorch operator that launched the kernel, if any."""

    launch: Launch | None = None


class KernelCounters(Frozen):
    """One kernel as Nsight Compute measures it, running alone with cold caches; of several executions the longest.

    A share is None if the device did not report it.
    """

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
    """Active warps relative to the most that a multiprocessor can hold."""

    l1_hits: float | None = None
    l2_hits: float | None = None
    loads_used: float | None = None
    """Share of the bytes moved by loads from global memory, in sectors of 32, that the kernel asked for."""

    stores_used: float | None = None
    bank_conflicts: float | None = None
    """Share of shared-memory accesses that were repeated because of a conflict."""

    stalls: dict[str, float] = Field(default={})
    """Share of a warp's time between two instructions, by stall."""


class Profile(Frozen):
    """The mean of a few calls."""

    clock: Literal["device", "host"]
    """`device` for kernels of a GPU, `host` for operators on a CPU."""

    steps: tuple[Step, ...] = Field(min_length=1)
    """The longest ones, longest first."""

    count: float
    """Kernels or operators per call, including those not in `steps`."""

    busy_ms: float
    """Time during which at least one step ran."""

    own_share: float
    """Share of the steps' time in custom code."""

    busy_cores: float | None = None
    """Average number of busy cores on a CPU."""

    counters: tuple[KernelCounters, ...] = ()
    """Counters of a GPU's kernels, longest first; empty if not requested or not readable."""
