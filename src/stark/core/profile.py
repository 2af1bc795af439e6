"""Where the time of one call goes, according to a profiler.

A program is profiled in its own, untrusted process, so no status and no speedup depends on a profile.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stark.core.base import Frozen
from stark.core.counters import KernelCounters

OUTSIDE = "outside PyTorch's operators"
"""Name of the CPU-profile step that sums time in custom native code and Python."""


class Launch(Frozen):
    """How a kernel was launched on a GPU."""

    registers: int
    """Per thread."""

    shared_bytes: int
    """Per block."""

    blocks: int
    threads: int
    """Per block."""

    occupancy: float | None = None
    """A fraction, estimated by the profiler: 0 if it cannot estimate it, None if it reports none."""

    spilled_bytes: int | None = None
    """Bytes of each thread's registers that are kept in memory; None if unknown."""


class Step(Frozen):
    """One kernel of a GPU, or one operator on a CPU, with all its executions in one call."""

    name: str
    count: float
    """Executions per call."""

    time_ms: float
    """All executions together, without nested operators."""

    share: float
    """Share of the time of all steps."""

    own: bool
    """Whether it is custom code, not PyTorch's or a library's."""

    operator: str | None = None
    """The PyTorch operator that launched the kernel, if any."""

    launch: Launch | None = None


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
