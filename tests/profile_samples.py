"""Profiles made by hand, on an invented GPU and an invented CPU."""

from __future__ import annotations

from typing import Any

from stark.core.bottleneck import Profiled
from stark.core.device import Device, Roofline
from stark.core.profile import Launch, Profile, Step
from support.nodes import CPU, DEVICE


def roofline(memory_ms: float, compute_ms: float = 0.0) -> Roofline:
    """On the invented GPU of 3000 GB/s and 50 TFLOP/s."""
    return Roofline(
        least_bytes=int(memory_ms * 3e9),
        flops=int(compute_ms * 5e10),
        arithmetic="fp32",
        memory_ms=memory_ms,
        compute_ms=compute_ms,
        own_arithmetic="fp32",
        own_compute_ms=compute_ms,
    )


def launch(blocks: int = 4096, occupancy: float | None = 0.75, spilled: int | None = 0) -> Launch:
    return Launch(
        registers=40,
        shared_bytes=4096,
        blocks=blocks,
        threads=256,
        occupancy=occupancy,
        spilled_bytes=spilled,
    )


def step(
    name: str = "scale_kernel",
    share: float = 1.0,
    launched: Launch | None = None,
    operator: str | None = None,
    count: float = 1.0,
) -> Step:
    return Step(
        name=name,
        count=count,
        time_ms=share,
        share=share,
        own=operator is None and not name.startswith("aten::"),
        operator=operator,
        launch=launched,
    )


def on_gpu(
    steps: tuple[Step, ...], roof: Roofline, busy_ms: float = 1.0, count: float = 1.0
) -> Profiled:
    """A call of one millisecond."""
    own = sum(each.share for each in steps if each.own)
    profile = Profile(clock="device", steps=steps, count=count, busy_ms=busy_ms, own_share=own)
    return Profiled(profile=profile, latency_ms=1.0, roofline=roof, device=DEVICE)


def on_cpu(
    steps: tuple[Step, ...],
    cores: float | None,
    device: Device = CPU,
    memory_ms: float = 0.1,
    **inside: Any,
) -> Profiled:
    """A call of one millisecond that by default moves a tenth of what it could."""
    profile = Profile(
        clock="host", steps=steps, count=3, busy_ms=1.0, own_share=0.0, busy_cores=cores, **inside
    )
    return Profiled(profile=profile, latency_ms=1.0, roofline=roofline(memory_ms), device=device)
