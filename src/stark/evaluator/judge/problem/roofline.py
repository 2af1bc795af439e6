"""Measures the device's peaks and computes the roofline: the least time for a reference's work."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable

import torch
from torch.utils import flop_counter
from torch.utils.flop_counter import FlopCounterMode

from stark.core.device import Device, Roofline
from stark.evaluator.judge.problem import processor
from stark.evaluator.judge.problem.inputs import Drawn, Program

COPY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}
MATRIX = {"cuda": 8192, "cpu": 1024}
REPEATS = 4

PLAUSIBLE_SHARE = 0.8
"""A time below this share of the roofline is implausible. Measurement errors are too small to explain such a time."""

LAUNCHES = 500


def measure_device(device: torch.device) -> Device:
    """Measure the device, in well under a second for a GPU and about a second for a CPU."""
    kind = "cuda" if device.type == "cuda" else "cpu"
    bandwidth = bandwidth_now(device)
    peaks = {"fp32": _matrix_rate(device, torch.float32, tf32=False)}
    if device.type == "cpu":
        return Device(
            kind=kind,
            name=processor.name(),
            architecture=platform.machine(),
            processors=len(os.sched_getaffinity(0)),
            memory_gb=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
            last_level_cache_mb=max(processor.caches_kb().values(), default=0.0) / 1024,
            bandwidth_gb_s=bandwidth,
            peak_tflop_s=peaks,
            features=processor.features(),
            l1_kb=processor.data_cache_kb(1),
            l2_kb=processor.data_cache_kb(2),
            threads=torch.get_num_threads(),
            blas=processor.blas(),
        )
    found = torch.cuda.get_device_properties(device)
    peaks["tf32"] = _matrix_rate(device, torch.float32, tf32=True)
    peaks["bf16"] = _matrix_rate(device, torch.bfloat16, tf32=False)
    return Device(
        kind=kind,
        index=device.index or 0,
        name=found.name,
        architecture=f"sm_{found.major}{found.minor}",
        processors=found.multi_processor_count,
        memory_gb=round(found.total_memory / 1e9, 1),
        last_level_cache_mb=found.L2_cache_size / 2**20,
        shared_memory_kb=getattr(found, "shared_memory_per_block_optin", 0) / 1024 or None,
        bandwidth_gb_s=bandwidth,
        peak_tflop_s=peaks,
        launch_us=_launch_us(device),
    )


def roofline(
    program: Program, drawn: Drawn, outputs: list[torch.Tensor], device: Device
) -> Roofline:
    """Compute the roofline from the reference's operations and the least bytes that it moves.

    The least bytes are those of inputs, weights and outputs, each counted once. On a CPU, timed calls find warm
    caches, so the bandwidth is measured on as many bytes as the problem moves. On a GPU the cache
    is cold, so the device's measured bandwidth applies.
    """
    counter = FlopCounterMode(display=False)
    _spare_the_compiler()
    with counter:
        program.run(drawn)
    per_operator = {
        str(operator): int(count)
        for operator, count in counter.get_flop_counts().get("Global", {}).items()
    }
    state = [*program.model.parameters(), *program.model.buffers()]
    written = {t.data_ptr(): t for t in outputs}.values()  # a changed input may also be returned
    least_bytes = sum(t.numel() * t.element_size() for t in [*drawn.tensors, *written, *state])
    bandwidth = device.bandwidth_gb_s
    if device.kind == "cpu":
        bandwidth = bandwidth_now(torch.device("cpu"), least_bytes // 2)
    times_ms: dict[str, float] = {}
    for operator, count in per_operator.items():
        kind = _arithmetic(operator, outputs[0].dtype, device)
        times_ms[kind] = times_ms.get(kind, 0.0) + count / device.peak_tflop_s[kind] / 1e9
    return Roofline(
        least_bytes=least_bytes,
        flops=sum(per_operator.values()),
        arithmetic=max(times_ms, key=lambda kind: times_ms[kind], default="fp32"),
        memory_ms=least_bytes / bandwidth / 1e6,
        compute_ms=sum(times_ms.values()),
    )


def _spare_the_compiler() -> None:
    """Keep PyTorch from importing its compiler, which takes three seconds, only to exempt the counter from it.

    Does nothing where the compiler is imported already: then the program may use it.
    """
    mode = getattr(flop_counter, "_FlopCounterMode", None)
    plain = getattr(getattr(mode, "__torch_dispatch__", None), "__wrapped__", None)
    if plain is not None and "torch._dynamo" not in sys.modules:
        plain.__dynamo_disable = plain  # where PyTorch keeps what it has exempted


def implausible(latency_ms: float, eager_ms: float, limit: Roofline) -> tuple[str, ...]:
    """Return a warning if the candidate's time is far below the roofline and the reference's is not.

    The candidate is not rejected, because a function that reads only part of its inputs needs less
    time than the roofline.
    """
    if not (latency_ms < PLAUSIBLE_SHARE * limit.floor_ms <= eager_ms):
        return ()
    return (
        f"{latency_ms:.4g} ms is {limit.floor_ms / latency_ms:.1f} times faster than the roofline "
        f"of {limit.floor_ms:.4g} ms: either the kernel does less work than the roofline "
        f"counts, or it uses faster arithmetic than {limit.arithmetic}, or the measurement is wrong; "
        "find out which before you rely on this time",
    )


def _arithmetic(operator: str, dtype: torch.dtype, device: Device) -> str:
    """Choose an operator's arithmetic by the output type and PyTorch's precision flags."""
    if device.kind == "cpu":
        return "fp32"
    if dtype in (torch.bfloat16, torch.float16):
        return "bf16"
    return "tf32" if _allows_tf32("conv" in operator) else "fp32"


def _allows_tf32(convolving: bool) -> bool:
    """Read PyTorch's TF32 flag.

    torch 2.9 added a newer flag. After a problem sets the newer flag, reading the older flag raises an error.
    """
    newer = (
        getattr(torch.backends.cudnn, "conv", None) if convolving else torch.backends.cuda.matmul
    )
    older = torch.backends.cudnn if convolving else torch.backends.cuda.matmul
    precision = getattr(newer, "fp32_precision", None)
    return bool(older.allow_tf32) if precision is None else precision == "tf32"


def bandwidth_now(device: torch.device, most_bytes: int | None = None) -> float:
    """Measure the bandwidth in GB/s, reads plus writes, with the faster of two streaming operations.

    Copies at most `most_bytes`. A measurement may be too low if the machine is busy.
    """
    copied_bytes = COPY_BYTES[device.type]
    if most_bytes is not None:
        copied_bytes = min(copied_bytes, most_bytes)
    source = torch.ones(max(copied_bytes // 4, 1), device=device)
    target = torch.empty_like(source)
    kernels: list[Callable[[], object]] = [
        lambda: target.copy_(source),
        lambda: torch.clamp(source, min=0, out=target),
    ]
    best = min(_seconds(kernel, device) for kernel in kernels for _ in range(REPEATS))
    return 2 * source.numel() * 4 / best / 1e9


def caches_bytes(device: Device) -> float:
    """Return the total size of the device's caches in bytes."""
    if device.kind == "cuda":
        return device.last_level_cache_mb * 2**20
    return sum(processor.caches_kb().values()) * 1024


def _matrix_rate(device: torch.device, dtype: torch.dtype, tf32: bool) -> float:
    """Measure TFLOP/s of a large square matrix product of random numbers."""
    size = MATRIX[device.type]
    left = torch.randn(size, size, device=device).to(dtype)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        best = min(_seconds(lambda: left @ left, device) for _ in range(REPEATS))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return 2 * size**3 / best / 1e12


def _launch_us(device: torch.device) -> float:
    small = torch.zeros(1, device=device)

    def launch_many() -> None:
        for _ in range(LAUNCHES):
            small.zero_()

    launch_many()
    return min(_seconds(launch_many, device) for _ in range(REPEATS)) / LAUNCHES * 1e6


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    begin = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - begin


def synchronize(device: torch.device) -> None:
    """Wait for the device; a no-op on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
