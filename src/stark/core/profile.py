"""What one call of a program spends its time on, as a profiler saw it.

A program is profiled in its own process, so this is information and never evidence: no status and no
speedup rests on it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stark.core.base import Frozen
from stark.core.counters import KernelCounters

OUTSIDE = "outside PyTorch's operators"
"""The entry of a CPU's profile for native code of the program's own, and for Python."""


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
    """Estimated share of the threads that a multiprocessor can hold."""

    spilled_bytes: int | None = None
    """Of each thread's registers, kept in memory instead; None where nobody told."""


class Step(Frozen):
    """One kernel of a GPU, or one operator on a CPU, with all its executions in one call."""

    name: str
    count: float
    """Executions per call."""

    time_ms: float
    """Of all of them, without what operators inside took."""

    share: float
    """Of the time of all steps."""

    own: bool
    """Whether it is the program's own, and not PyTorch's or a library's."""

    operator: str | None = None
    """The PyTorch operator that launched a kernel, if one did."""

    launch: Launch | None = None


class Profile(Frozen):
    """One call, as the mean of a few."""

    clock: Literal["device", "host"]
    """Kernels of a GPU are seen by the device, operators of a CPU by the host."""

    steps: tuple[Step, ...] = Field(min_length=1)
    """Those that take most time, the longest first."""

    count: float
    """Kernels or operators that one call executes, those included that `steps` leaves out."""

    busy_ms: float
    """For how long at least one of the steps ran."""

    own_share: float
    """Share of the steps' time that is the program's own."""

    busy_cores: float | None = None
    """Cores that worked at a time on a CPU."""

    counters: tuple[KernelCounters, ...] = ()
    """Of a GPU's kernels, the longest first; empty where nobody asked for them, or they may not be read."""
