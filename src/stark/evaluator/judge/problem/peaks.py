"""Measures the device: how fast it moves bytes and multiplies matrices."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from timeit import repeat

import torch

from stark.core.device import Device
from stark.evaluator.judge.problem.streams import MOVES, streamed_gb_s
from stark.evaluator.judge.processes import processor
from stark.evaluator.judge.processes.placing import one_thread

COPY_BYTES = 1 << 30
"""Bytes that are copied to measure a GPU's bandwidth."""

STREAM_BYTES, PIECE_BYTES = 1 << 28, 1 << 20
"""The least bytes that are moved to measure the bandwidth of a CPU's memory, and those in one call: so few that the
threads' rounds end at about the same moment."""

LEAST_BYTES = 1 << 14
"""The smallest data whose bandwidth is measured on a CPU."""

CACHED_SHARE = 0.25
"""Share of a CPU's caches up to which their bandwidth is measured. The rest may be in use by other programs, or by other
machines of the same host."""

UNKNOWN_CACHES_BYTES = 1 << 25
"""Taken for the size of a CPU's caches where Linux does not report it."""

MATRIX = {"cuda": (1024, 8192), "cpu": (128, 512)}
"""Sizes of the matrices whose product is measured."""

MOST_S = 0.5
"""A product that would take longer is not measured: the device has no instructions for its type."""

REPEATS = 4
"""A measurement is repeated so often. The shortest time counts."""

LONG_S, SHORT_S = 1.0, 0.1
"""For so long each peak, the bandwidth, and those of a CPU's caches together are measured: other programs slow most
measurements down."""

MEMORY_S = 0.3
"""For so long the bandwidth of a CPU's memory is measured if there is little time."""

LAUNCHES = 500


def measure_device(device: torch.device, long: bool = True) -> Device:
    """Measure the device: well under a second for a GPU, about one for a CPU, and one to four more if it may take `long`."""
    seconds = LONG_S if long else SHORT_S
    kinds = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
    peaks = {name: _matrix_rate(device, dtype, seconds) for name, dtype in kinds.items()}
    peaks["int8"] = peaks["bf16"]  # bfloat16 holds these numbers exactly
    with suppress(RuntimeError):  # PyTorch has no such product
        peaks["int8"] = _matrix_rate(device, torch.int8, SHORT_S)
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        small = torch.zeros(1, device=device)
        launches_s = _best_s(lambda: [small.zero_() for _ in range(LAUNCHES)], device)
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
            launch_us=launches_s / LAUNCHES * 1e6,
        )
    return Device(
        kind="cpu",
        name=processor.name(),
        architecture=platform.machine(),
        processors=len(os.sched_getaffinity(0)),
        memory_gb=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        last_level_cache_mb=max(processor.caches_kb().values(), default=0.0) / 1024,
        bandwidth_gb_s=bandwidth_now(device, LONG_S if long else MEMORY_S),
        bandwidths_gb_s=_cached_gb_s(LONG_S if long else 0.0),
        peak_tflop_s=peaks,
        features=processor.features(),
        l1_kb=processor.data_cache_kb(1),
        l2_kb=processor.data_cache_kb(2),
        threads=torch.get_num_threads(),
        blas=processor.blas(),
    )


def bandwidth_now(device: torch.device, seconds: float = MEMORY_S) -> float:
    """Measure the memory's bandwidth in GB/s, reads plus writes; on a CPU for `seconds`, and too low if it is busy."""
    if device.type == "cpu":
        return streamed_gb_s(max(STREAM_BYTES, 2 * _held_bytes()), seconds, PIECE_BYTES)
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    fastest_s = min(_best_s(partial(move, source, target), device) for move in MOVES)
    return 2 * source.nbytes / fastest_s / 1e9


def _cached_gb_s(seconds: float) -> dict[int, float]:
    """The bandwidth of a CPU's caches by the bytes moved, up to all that they hold."""
    held = _held_bytes()
    powers = int(math.log2(max(CACHED_SHARE * held / LEAST_BYTES, 1))) + 1
    sizes = [LEAST_BYTES << power for power in range(powers)]
    found = {size: streamed_gb_s(size, seconds / powers) for size in sizes}
    return found | {held: found[sizes[-1]]}


def _held_bytes() -> int:
    """What a CPU's caches hold."""
    return int(sum(processor.caches_kb().values()) * 1024) or UNKNOWN_CACHES_BYTES


def caches_bytes(device: Device) -> float:
    """Return the total size of the device's caches in bytes."""
    return device.last_level_cache_mb * 2**20 if device.kind == "cuda" else _held_bytes()


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


def _best_s(work: Callable[[], object], device: torch.device) -> float:
    def done() -> None:
        work()
        synchronize(device)

    synchronize(device)
    return min(repeat(done, number=1, repeat=REPEATS))


def synchronize(device: torch.device) -> None:
    """Wait for the device; a no-op on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
