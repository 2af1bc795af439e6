"""Measures the device: how fast it moves bytes and multiplies matrices."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import torch

from stark.core.device import Device
from stark.evaluator.judge.problem import processor
from stark.evaluator.judge.processes.placing import Placed, one_thread

COPY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}

SIZES = [1 << power for power in range(14, 29)]
"""Bytes that are moved to measure a CPU's bandwidth: the smaller, the nearer the cache that holds them."""

MATRIX = {"cuda": (1024, 8192), "cpu": (128, 512)}
"""Sizes of the matrices whose product is measured."""

MOST_S = 0.5
"""A product that would take longer is not measured: the device has no instructions for its type."""

REPEATS = 4
"""A measurement is repeated so often. The shortest time counts."""

FIRST_S, LATER_S = 1.0, 0.1
"""The first judge on a CPU measures each peak, and the bandwidths together, for so long: other programs slow most
measurements down."""

PAUSE_S = 0.004

LAUNCHES = 500


def measure_device(device: torch.device, first: bool = True) -> Device:
    """Measure the device: well under a second for a GPU, about one for a CPU, and one to four more the `first` time."""
    seconds = FIRST_S if first else LATER_S
    kinds = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
    peaks = {name: _matrix_rate(device, dtype, seconds) for name, dtype in kinds.items()}
    peaks["int8"] = peaks["bf16"]  # bfloat16 holds these numbers exactly
    with suppress(RuntimeError):  # PyTorch has no such product
        peaks["int8"] = _matrix_rate(device, torch.int8, LATER_S)
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        peaks["tf32"] = _matrix_rate(device, torch.float32, seconds, tf32=True)
        return Device(
            kind="cuda",
            index=device.index or 0,
            name=found.name,
            architecture=f"sm_{found.major}{found.minor}",
            processors=found.multi_processor_count,
            memory_gb=round(found.total_memory / 1e9, 1),
            last_level_cache_mb=found.L2_cache_size / 2**20,
            shared_memory_kb=getattr(found, "shared_memory_per_block_optin", 0) / 1024 or None,
            bandwidth_gb_s=bandwidth_now(device),
            peak_tflop_s=peaks,
            launch_us=_launch_us(device),
        )
    with _on_separate_cores():
        bandwidth = bandwidth_now(device)
        each_s = FIRST_S / len(SIZES) if first else 0.0
        bandwidths = {size: bandwidth_now(device, size // 2, each_s) for size in SIZES}
    return Device(
        kind="cpu",
        name=processor.name(),
        architecture=platform.machine(),
        processors=len(os.sched_getaffinity(0)),
        memory_gb=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        last_level_cache_mb=max(processor.caches_kb().values(), default=0.0) / 1024,
        bandwidth_gb_s=bandwidth,
        bandwidths_gb_s=bandwidths,
        peak_tflop_s=peaks,
        features=processor.features(),
        l1_kb=processor.data_cache_kb(1),
        l2_kb=processor.data_cache_kb(2),
        threads=torch.get_num_threads(),
        blas=processor.blas(),
    )


def bandwidth_now(
    device: torch.device, most_bytes: float = math.inf, patience_s: float = 0.0
) -> float:
    """Measure the bandwidth in GB/s, reads plus writes, with the faster of two streaming operations.

    Copies at most `most_bytes`. A measurement may be too low if the machine is busy, less so with `patience_s`.
    """
    copied_bytes = min(COPY_BYTES[device.type], most_bytes)
    source = torch.ones(max(int(copied_bytes) // 4, 1), device=device)
    target = torch.empty_like(source)
    kernels: list[Callable[[], object]] = [
        lambda: target.copy_(source),
        lambda: torch.clamp(source, min=0, out=target),
    ]
    best = min(_best_s(kernel, device) for kernel in kernels)
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        time.sleep(PAUSE_S)
        best = min(best, *(_best_s(kernel, device) for kernel in kernels))
    return 2 * source.numel() * 4 / best / 1e9


def caches_bytes(device: Device) -> float:
    """Return the total size of the device's caches in bytes."""
    if device.kind == "cuda":
        return device.last_level_cache_mb * 2**20
    return sum(processor.caches_kb().values()) * 1024


def _matrix_rate(
    device: torch.device, dtype: torch.dtype, seconds: float, tf32: bool = False
) -> float:
    """Measure TFLOP/s of a square matrix product of random numbers: a small one first, in case this type is emulated."""
    small, size = MATRIX[device.type]
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        with one_thread():
            rate = _product_rate(device, dtype, small)
        if 2 * size**3 / rate / 1e12 > MOST_S:
            return rate
        if device.type == "cpu":
            return _cores_rate(dtype, size, seconds)
        return max(rate, _product_rate(device, dtype, size))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _cores_rate(dtype: torch.dtype, size: int, seconds: float) -> float:
    """Measure TFLOP/s of all of a CPU's threads together, each with products of its own.

    Each thread counts its own processor time. That leaves out the time in which other programs have its core, and no
    thread waits for another.
    """

    def rate(_: int) -> float:
        torch.set_num_threads(1)
        left = torch.randn(size, size).to(dtype)
        best_s, end = math.inf, time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.thread_time()
            _product(left)
            best_s = min(best_s, time.thread_time() - begin)
        return 2 * size**3 / best_s / 1e12

    threads = torch.get_num_threads()
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(rate, range(threads)))


def _product_rate(device: torch.device, dtype: torch.dtype, size: int) -> float:
    left = torch.randn(size, size, device=device).to(dtype)
    return 2 * size**3 / _best_s(lambda: _product(left), device) / 1e12


def _product(left: torch.Tensor) -> torch.Tensor:
    """A square matrix by itself; in int8 by its transpose, in the order of memory that cuBLAS wants."""
    return torch._int_mm(left, left.t()) if left.dtype == torch.int8 else left @ left


@contextmanager
def _on_separate_cores() -> Iterator[None]:
    """Keep each of torch's threads on a core of its own meanwhile (see `Placed`)."""
    placed = Placed(os.getpid())
    try:
        _product_rate(torch.device("cpu"), torch.float32, MATRIX["cpu"][1])
        placed.settle()
        yield
    finally:
        placed.loosen()


def _launch_us(device: torch.device) -> float:
    small = torch.zeros(1, device=device)
    return _best_s(lambda: [small.zero_() for _ in range(LAUNCHES)], device) / LAUNCHES * 1e6


def _best_s(work: Callable[[], object], device: torch.device) -> float:
    best = math.inf
    for _ in range(REPEATS):
        synchronize(device)
        begin = time.perf_counter()
        work()
        synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return best


def synchronize(device: torch.device) -> None:
    """Wait for the device; a no-op on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
