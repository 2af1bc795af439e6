"""The device sheet (a device's limits) and the roofline (the least time that a problem needs on that device)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from stark.core.base import Frozen


class Device(Frozen):
    """The device sheet. Bandwidth, peaks and launch cost are measured, not taken from the vendor's datasheet."""

    kind: Literal["cpu", "cuda"]
    index: int = 0
    name: str
    architecture: str
    """`sm_90` for a GPU; the instruction set for a CPU."""

    processors: int
    """Streaming multiprocessors of a GPU, or CPU cores that the judge may use."""

    memory_gb: float
    last_level_cache_mb: float
    shared_memory_kb: float | None = None
    """Limit per block; None for a CPU."""

    bandwidth_gb_s: float
    """Measured: bytes read plus bytes written by a large copy."""

    bandwidths_gb_s: dict[int, float] = Field(default_factory=dict)
    """The same for a CPU's caches, by the number of bytes moved: the largest is all that they hold. Empty for a GPU."""

    peak_tflop_s: dict[str, float]
    """Measured by a large matrix product in each arithmetic: `fp32`, `tf32`, `bf16`."""

    unconfirmed: tuple[str, ...] = ()
    """The rates of a CPU that too few judges have measured: an arithmetic, a number of bytes, or `MEMORY`. Other programs,
    and in a virtual machine its neighbours, may have slowed each of these measurements down."""

    launch_us: float | None = None
    """Measured cost of launching one empty kernel from PyTorch; None for a CPU."""

    features: tuple[str, ...] = ()
    """Instruction sets of a CPU that kernels profit from, such as `AVX-512 BF16`; empty for a GPU."""

    l1_kb: float | None = None
    """L1 data cache of one CPU core. This and `l2_kb` are None for a GPU, and if the system does not report them."""

    l2_kb: float | None = None
    threads: int | None = None
    """Threads that OpenMP starts in a candidate on a CPU; None for a GPU."""

    blas: str | None = None
    """Libraries behind PyTorch's matrix products on a CPU, such as `MKL and oneDNN`; None for a GPU."""

    @property
    def size(self) -> str:
        """The memory of a GPU, or the cores of a CPU."""
        if self.kind == "cuda":
            return f"{self.memory_gb:.0f} GB"
        return f"{self.processors} core{'' if self.processors == 1 else 's'}"

    @property
    def launch_ms(self) -> float:
        """`launch_us` in milliseconds; 0 for a CPU."""
        return (self.launch_us or 0.0) / 1e3


MEMORY = "memory"
"""Names `bandwidth_gb_s` among the rates."""


COMPARABLE = ("cuda", "driver", "torch", "compilers")
"""The versions on which times and verdicts depend."""


def device_class(device: Device, versions: Mapping[str, str]) -> str:
    """Names in one line the machines on which times are comparable: the device, and what builds and runs kernels."""
    software = (f"{name} {versions[name]}" for name in COMPARABLE if name in versions)
    return "; ".join([f"{device.name}, {device.size}", *software])


NEAR = 0.05
"""Relative uncertainty of a measured peak. A time reaches the roofline if it is longer by at most this fraction. A time
contradicts the roofline if it is shorter by more than this fraction."""


class Roofline(Frozen):
    """The least work that a problem requires, and the time that one device needs for this work."""

    least_bytes: int
    """What the reference reads of its inputs and weights and what it writes, each moved once: of a table the rows that it
    looks up, of an input that changes in place the rows that it writes."""

    flops: int
    """Floating-point operations of matrix products, convolutions and attention in the reference."""

    memory_ms: float
    arithmetic: str
    """The fastest arithmetic that is accurate enough, such as `bf16x3`, for the operations that make up most of
    `compute_ms`."""

    compute_ms: float
    """All operations at the measured peaks of the fastest arithmetic that is accurate enough."""

    own_arithmetic: str
    """The arithmetic of the reference for the operations that make up most of `own_compute_ms`."""

    own_compute_ms: float
    """All operations at the measured peaks of the reference's arithmetic."""

    is_confirmed: bool = True
    """Whether enough judges have measured the rates that set the time (see `Device.unconfirmed`)."""

    @property
    def bound(self) -> Literal["memory", "compute"]:
        """Whether memory traffic or arithmetic takes longer."""
        return "memory" if self.memory_ms >= self.compute_ms else "compute"

    @property
    def floor_ms(self) -> float:
        """The roofline's time. A kernel can be faster if its data stays in a cache or if it does less arithmetic."""
        return max(self.memory_ms, self.compute_ms)

    def is_beaten_by(self, latency_ms: float) -> bool:
        """Whether a time is below the roofline by more than the roofline's uncertainty."""
        return latency_ms < (1 - NEAR) * self.floor_ms

    def is_known(self, fastest_ms: float) -> bool:
        """Whether it can be relied on, if the fastest program takes so long."""
        return self.is_confirmed and not self.is_beaten_by(fastest_ms)
