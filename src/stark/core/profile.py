"""Where the time of one call goes, according to a profiler.

A program is profiled in its own, untrusted process, so no status and no speedup depends on a profile.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stark.core.base import Frozen

OUTSIDE = "outside PyTorch's operators"
"""Name of the CPU-profile step that sums time in Python and in compiled code that was not seen to be called."""

BUSY = 0.6
"""A hardware unit that reaches at least this share of its peak limits the kernel."""

STALLS = tuple(
    "long_scoreboard short_scoreboard mio_throttle lg_throttle math_pipe_throttle barrier wait drain no_instruction".split()
)
"""The stall reasons that are read, by NVIDIA's names. A stall reason is why a warp waits."""


class Launch(Frozen):
    """How a GPU kernel was launched. Registers are per thread; shared bytes and threads are per block."""

    registers: Annotated[int, Field(ge=0, le=1024)]
    shared_bytes: Annotated[int, Field(ge=0, le=1 << 24)]
    blocks: Annotated[int, Field(ge=0, le=1 << 62)]
    threads: Annotated[int, Field(ge=0, le=4096)]
    occupancy: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    """A fraction, estimated by the profiler: 0 if no estimate is possible, None if the profiler reports nothing."""

    spilled_bytes: Annotated[int, Field(ge=0, le=1 << 30)] | None = None
    """Bytes that each thread spills from registers to memory; None if unknown."""


class Step(Frozen):
    """One kernel of a GPU, or one operator on a CPU."""

    name: str
    count: float
    """Executions per call."""

    time_ms: float
    """Time of all executions in one call, without the time of nested operators."""

    share: float
    """`time_ms` as a share of the time of all steps."""

    own: bool
    """Whether it is custom code, not PyTorch's or a library's; on a CPU, `OUTSIDE` or a compiled function."""

    operator: str | None = None
    """The PyTorch operator that launched the kernel, if any."""

    launch: Launch | None = None


class KernelCounters(Frozen):
    """One kernel as Nsight Compute measures it, running alone with cold caches.

    The time and the bytes are those of all its executions; the other counters are those of the longest execution. A
    counter is None if the device did not report it.
    """

    name: str
    time_ms: float
    """Time under the profiler."""

    share: float
    """`time_ms` as a share of the time of all kernels."""

    dram_bytes: float | None = None
    """Bytes read from and written to the GPU's memory."""

    dram: float | None = None
    """Achieved share of the GPU memory's peak bandwidth."""

    issue: float | None = None
    """Load of the busiest unit in the multiprocessors, as a share of that unit's peak."""

    tensor: float | None = None
    """Share of cycles in which the tensor cores were active."""

    occupancy: float | None = None
    """Active warps as a share of the most that a multiprocessor can hold."""

    l1_hits: float | None = None
    l2_hits: float | None = None
    loads_used: float | None = None
    """Of the bytes that loads from global memory move (in 32-byte sectors), the share that the kernel requested."""

    stores_used: float | None = None
    bank_conflicts: float | None = None
    """Share of shared-memory accesses that were repeated because of a conflict."""

    stalls: dict[str, float] = Field(default={})
    """Maps each stall reason to its share of a warp's time between two instructions."""


class Profile(Frozen):
    """A profile averaged over a few calls."""

    clock: Literal["device", "host"]
    """`device` for kernels of a GPU, `host` for operators on a CPU."""

    steps: tuple[Step, ...] = Field(min_length=1)
    """The steps that take the most time, longest first."""

    count: float
    """Kernels or operators per call, including those not in `steps`."""

    busy_ms: float
    """Time per call during which at least one step ran."""

    own_share: float
    """Share of the steps' time that custom code takes."""

    busy_cores: float | None = None
    """Average number of busy cores on a CPU. Threads that spin at the end of an OpenMP region, or wait for a core, count."""

    system_share: float | None = None
    """On a CPU, the share of the processor time in the operating system, such as for mapping new memory."""

    page_faults: float | None = None
    """On a CPU, how many pages of memory a call touches for the first time."""

    alone: float | None = None
    """On a CPU, the time of a call with one thread, divided by the time with all; None if it was not measured."""

    scalar_calls: tuple[str, ...] = ()
    """On a CPU, the C library's functions of one number, such as `expf`, that the program's compiled code refers to."""

    counters: tuple[KernelCounters, ...] = ()
    """Counters of a GPU's kernels, longest first; empty if not requested or not readable."""
