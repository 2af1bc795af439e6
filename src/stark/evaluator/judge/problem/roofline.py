"""Measures the device's peaks and computes the roofline: the least time for a reference's work."""

from __future__ import annotations

import math
import os
import platform
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stark.core.device import Device, Roofline
from stark.core.precision import DEFAULT, Precision, looser
from stark.evaluator.judge.problem import processor
from stark.evaluator.judge.problem.flops import flops_of, is_product
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.traffic import Part, bytes_of, moved, nature, parts_of
from stark.evaluator.judge.processes.placing import Placed

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

ADMITTED: dict[Precision, tuple[str, ...]] = {
    "reference": ("fp32", "tf32x3", "bf16x6"),
    "fp32-split": ("fp32", "tf32x3", "bf16x6", "bf16x3"),
    "tf32": ("fp32", "tf32x3", "bf16x6", "bf16x3", "tf32"),
    "bf16": ("fp32", "tf32x3", "bf16x6", "bf16x3", "tf32", "bf16"),
}
"""The arithmetic whose error is usually within a class's budget. `bf16x3` splits each float32 number into two parts in
bfloat16 and adds three of their products; `bf16x6` has three parts and six products."""

OWN_PRECISION: dict[str, Precision] = {
    "fp64": "reference",
    "fp32": "reference",
    "tf32": "tf32",
    "bf16": "bf16",
    "int8": "reference",
}
"""The strictest class that admits each arithmetic of references."""

PLAUSIBLE_SHARE = 0.8
"""A time below this share of the roofline is implausible. Measurement errors are too small to explain such a time."""

LAUNCHES = 500


def measure_device(device: torch.device, first: bool = True) -> Device:
    """Measure the device, in well under a second for a GPU and about a second for a CPU.

    The `first` measurement of a CPU takes one to four seconds more.
    """
    kind = "cuda" if device.type == "cuda" else "cpu"
    seconds = FIRST_S if first else LATER_S
    kinds = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
    peaks = {name: _matrix_rate(device, dtype, seconds) for name, dtype in kinds.items()}
    peaks["int8"] = _int8_rate(device, peaks["bf16"])
    with _on_separate_cores() if kind == "cpu" else nullcontext():
        bandwidth = bandwidth_now(device)
        if kind == "cpu":
            each_s = FIRST_S / len(SIZES) if first else 0.0
            bandwidths = {size: bandwidth_now(device, size // 2, each_s) for size in SIZES}
    if kind == "cpu":
        return Device(
            kind=kind,
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
    found = torch.cuda.get_device_properties(device)
    peaks["tf32"] = _matrix_rate(device, torch.float32, seconds, tf32=True)
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


def operations_of(program: Program, drawn: Drawn, kind: Literal["cuda", "cpu"]) -> Operations:
    """Count the operations of one call of the reference, and the least bytes that it moves."""
    operations = Operations(kind)
    results = program.run(drawn, watching=operations)
    operations.returned(results[: len(results) - len(program.state) - len(program.changes)])
    if (
        not operations.has_read
    ):  # code without operators, such as a compiled function: it may read all
        model = program.model
        operations.read([*drawn.tensors, *model.parameters(), *model.buffers()])
    return operations


def roofline(
    least_bytes: int,
    counted: Mapping[str, int],
    device: Device,
    precision: Precision = DEFAULT,
) -> Roofline:
    """Compute the roofline from the reference's operations and the least bytes that it moves.

    `counted` are the operations by the reference's arithmetic. Each counts at the rate of the fastest arithmetic that
    the precision admits. On a CPU, timed calls find warm caches, so the bandwidth is that for as many bytes as the
    problem moves. On a GPU the cache is cold, so the device's measured bandwidth applies.
    """
    bandwidth = device.bandwidth_gb_s
    if device.kind == "cpu":
        bandwidth = bandwidth_of(device, least_bytes)
    own_ms: dict[str, float] = defaultdict(float)
    least_ms: dict[str, float] = defaultdict(float)
    for own, flops in counted.items():
        rates = {kind: _rate(kind, device.peak_tflop_s) for kind in admitted(own, precision)}
        fastest = max(rates, key=lambda kind: rates[kind])
        own_ms[own] += flops / rates[own] / 1e9
        least_ms[fastest] += flops / rates[fastest] / 1e9
    return Roofline(
        least_bytes=least_bytes,
        flops=sum(counted.values()),
        memory_ms=least_bytes / bandwidth / 1e6,
        arithmetic=max(least_ms, key=lambda kind: least_ms[kind], default="fp32"),
        compute_ms=sum(least_ms.values()),
        own_arithmetic=max(own_ms, key=lambda kind: own_ms[kind], default="fp32"),
        own_compute_ms=sum(own_ms.values()),
    )


def bandwidth_of(device: Device, moved_bytes: int) -> float:
    """The CPU's bandwidth for this many bytes: the higher of those measured with the sizes around it."""
    around = sorted(
        device.bandwidths_gb_s, key=lambda size: abs(math.log2(size / max(moved_bytes, 1)))
    )
    return max([device.bandwidths_gb_s[size] for size in around[:2]], default=device.bandwidth_gb_s)


def admitted(own: str, precision: Precision) -> tuple[str, ...]:
    """The arithmetic that a candidate may use for operations that the reference does in `own`, beginning with it.

    float64 is only replaced if the user chose a class that is looser than float32.
    """
    if own == "fp64" and precision in ("reference", "fp32-split"):
        return (own,)
    others = ADMITTED[looser(precision, OWN_PRECISION[own])]
    return (own, *(each for each in others if each != own))


def _rate(arithmetic: str, peaks: Mapping[str, float]) -> float:
    """TFLOP/s at the measured peak. `bf16x3` needs three products in bf16; 0 if the device has no such peak."""
    narrow, _, products = arithmetic.partition("x")
    return peaks.get(narrow, 0.0) / int(products or 1)


class Operations(TorchDispatchMode):
    """Counts the operations of matrix products, convolutions and attention, by the reference's arithmetic, and bytes.

    As torch's FlopCounterMode, which does not tell types apart and imports the compiler.
    """

    def __init__(self, kind: Literal["cuda", "cpu"]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kind = kind
        self.counted: Counter[str] = Counter()
        self.precision: Precision = "reference"
        """The loosest class of all operations, also of those that are not counted, such as a conversion to float16."""

        self._made: set[int] = set()
        """Storages that operators made. All others are inputs, weights and constants."""

        self._read: set[Part] = set()
        self._written: set[Part] = set()
        """Parts of the other storages that operators read and write, and what the call returns."""

    @property
    def least_bytes(self) -> int:
        """Bytes of what is read, each once, of what is written to inputs in place, and of what is returned."""
        return bytes_of(self._read) + bytes_of(self._written)

    @property
    def has_read(self) -> bool:
        """Whether any operator read an input, a weight or a constant."""
        return bool(self._read)

    def read(self, tensors: Iterable[torch.Tensor]) -> None:
        """Note that the call reads these tensors."""
        self._read |= set(parts_of(list(tensors)))

    def returned(self, outputs: Iterable[torch.Tensor]) -> None:
        """Note what the call returns, unless it was written in place already."""
        in_place = {part.storage for part in self._written}
        self._written |= {part for part in parts_of(list(outputs)) if part.storage not in in_place}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch imports its compiler, for three seconds, to exempt this class from it."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        operator, kwargs = getattr(func, "_overloadpacket", func), kwargs or {}
        if not is_product(operator):
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                self._note(str(operator), found)
                return found
        result = func(*args, **kwargs)
        self._note_traffic(func, args, kwargs, result)
        if not is_product(operator):
            self._note(str(operator), result)
            return result
        given = next(leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor))
        arithmetic = arithmetic_of("conv" in str(operator), given.dtype, self._kind)
        self.counted[arithmetic] += flops_of(operator, args, kwargs, result) or 0
        self.precision = looser(self.precision, OWN_PRECISION[arithmetic])
        return result

    def _note_traffic(self, func: Any, args: Any, kwargs: Any, result: object) -> None:
        """Note what an operator reads and writes outside of what the call itself has made."""
        given = {part.storage for part in parts_of((args, kwargs))}
        self._made |= {part.storage for part in parts_of(result)} - given
        name, is_free = nature(func)
        if not is_free:
            read, written = moved(func, name, args, kwargs)
            self._read |= {part for part in read if part.storage not in self._made}
            self._written |= {part for part in written if part.storage not in self._made}

    def _note(self, operator: str, result: object) -> None:
        """Note an operation that is not counted and is less exact than float32: by TF32 in cuDNN, or by its result's type.

        A problem that allows TF32 for matrix products also gets it in fused operators, which are not told apart.
        """
        if self._kind == "cuda" and (
            _allows_tf32(convolving=False)
            or ("cudnn" in operator and _allows_tf32(convolving=True))
        ):
            self.precision = looser(self.precision, "tf32")
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.itemsize < 4:
                narrow: Precision = "tf32" if leaf.dtype == torch.float16 else "bf16"
                self.precision = looser(self.precision, narrow)


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


def arithmetic_of(convolving: bool, dtype: torch.dtype, kind: Literal["cuda", "cpu"]) -> str:
    """PyTorch's arithmetic for operands of this type, by its precision flags."""
    if dtype in (torch.float64, torch.complex128):
        return "fp64"
    if dtype in (torch.int8, torch.uint8):
        return "int8"
    if dtype.itemsize < 4:
        return "bf16"
    return "tf32" if kind == "cuda" and _allows_tf32(convolving) else "fp32"


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


def bandwidth_now(
    device: torch.device, most_bytes: int | None = None, patience_s: float = 0.0
) -> float:
    """Measure the bandwidth in GB/s, reads plus writes, with the faster of two streaming operations.

    Copies at most `most_bytes`. A measurement may be too low if the machine is busy, less so with `patience_s`.
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
        with _one_thread():
            rate = _product_rate(device, dtype, small)
        if 2 * size**3 / rate / 1e12 > MOST_S:
            return rate
        if device.type == "cpu":
            return _cores_rate(dtype, size, seconds)
        return max(rate, _product_rate(device, dtype, size))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _int8_rate(device: torch.device, otherwise: float) -> float:
    """The same for int8. `otherwise` where PyTorch has no such product: bfloat16 holds these numbers exactly."""
    try:
        return _matrix_rate(device, torch.int8, LATER_S)
    except RuntimeError:
        return otherwise


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
    try:
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(rate, range(threads)))
    finally:
        torch.set_num_threads(threads)


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


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread of the CPU meanwhile: threads wait for each other while other programs run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _launch_us(device: torch.device) -> float:
    small = torch.zeros(1, device=device)

    def launch_many() -> None:
        for _ in range(LAUNCHES):
            small.zero_()

    launch_many()
    return _best_s(launch_many, device) / LAUNCHES * 1e6


def _best_s(work: Callable[[], object], device: torch.device) -> float:
    return min(_seconds(work, device) for _ in range(REPEATS))


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
