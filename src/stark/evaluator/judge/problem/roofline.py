"""Counts a reference's work and computes the roofline: the least time that the device's peaks allow for it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stark.core.device import MEMORY, Device, Roofline
from stark.core.precision import DEFAULT, Precision, looser
from stark.evaluator.judge.problem.flops import flops_of, is_product
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.traffic import Part, bytes_of, moved, nature, parts_of

ADMITTED: dict[Precision, tuple[str, ...]] = {
    "reference": ("fp32", "tf32x3", "bf16x6"),
    "fp32-split": ("fp32", "tf32x3", "bf16x6", "bf16x3"),
    "tf32": ("fp32", "tf32x3", "bf16x6", "bf16x3", "tf32"),
    "bf16": ("fp32", "tf32x3", "bf16x6", "bf16x3", "tf32", "bf16"),
}
"""The arithmetic whose error is usually within a class's budget. `bf16x3` splits each float32 number into two parts in
bfloat16 and adds three of their products; `bf16x6` has three parts and six products."""

OWN_PRECISION: dict[str, Precision] = {"tf32": "tf32", "bf16": "bf16"}
"""The strictest class that admits each arithmetic of references; of the others, `reference`."""

PLAUSIBLE_SHARE = 0.8
"""A time below this share of the roofline is implausible. Measurement errors are too small to explain such a time."""


def operations_of(program: Program, drawn: Drawn, kind: Literal["cuda", "cpu"]) -> Operations:
    """Count the operations of one call of the reference, and the least bytes that it moves."""
    operations, model = Operations(kind), program.model
    results = program.run(drawn, watching=operations)
    given = [*drawn.tensors, *model.parameters(), *model.buffers()]
    operations.end(given, results[: len(results) - len(program.state) - len(program.changes)])
    return operations


def roofline(
    least_bytes: int, counted: Mapping[str, int], device: Device, precision: Precision = DEFAULT
) -> Roofline:
    """Compute the roofline from the reference's operations and the least bytes that it moves.

    `counted` are the operations by the reference's arithmetic. Each counts at the rate of the fastest arithmetic that
    the precision admits.
    """
    own_ms: dict[str, float] = defaultdict(float)
    least_ms: dict[str, float] = defaultdict(float)
    used: set[str] = set()
    for own, flops in counted.items():
        rates = {kind: _rate(kind, device.peak_tflop_s) for kind in admitted(own, precision)}
        fastest = max(rates, key=lambda kind: rates[kind])
        used.add(fastest.partition("x")[0])
        own_ms[own] += flops / rates[own] / 1e9
        least_ms[fastest] += flops / rates[fastest] / 1e9
    (memory_ms, moving), compute_ms = traffic(least_bytes, device), sum(least_ms.values())
    setting = moving if memory_ms >= compute_ms else used
    return Roofline(
        least_bytes=least_bytes,
        flops=sum(counted.values()),
        memory_ms=memory_ms,
        arithmetic=max(least_ms, key=lambda kind: least_ms[kind], default="fp32"),
        compute_ms=compute_ms,
        own_arithmetic=max(own_ms, key=lambda kind: own_ms[kind], default="fp32"),
        own_compute_ms=sum(own_ms.values()),
        is_confirmed=setting.isdisjoint(device.unconfirmed),
    )


def traffic(moved_bytes: int, device: Device) -> tuple[float, set[str]]:
    """The least milliseconds in which the device moves these bytes, and the names of the rates that this time is from.

    On a CPU, timed calls find warm caches: what fits there moves at the caches' bandwidth, the rest at the memory's. The
    caches' bandwidth is the higher of those measured with the two sizes around. On a GPU the cache is cold.
    """
    known = device.bandwidths_gb_s
    held = min(moved_bytes, max(known, default=0))
    memory_ms, used = (moved_bytes - held) / device.bandwidth_gb_s / 1e6, set[str]()
    if held < moved_bytes:
        used.add(MEMORY)
    if held:
        around = sorted(known, key=lambda size: abs(math.log2(size / held)))
        best = max(around[:2], key=lambda size: known[size])
        memory_ms += held / known[best] / 1e6
        used.add(str(best))
    return memory_ms, used


def admitted(own: str, precision: Precision) -> tuple[str, ...]:
    """The arithmetic that a candidate may use for operations that the reference does in `own`, beginning with it.

    float64 is only replaced if the user chose a class that is looser than float32.
    """
    if own == "fp64" and precision in ("reference", "fp32-split"):
        return (own,)
    others = ADMITTED[looser(precision, OWN_PRECISION.get(own, "reference"))]
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

    def end(self, given: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """Note what the call returns, unless it was written in place already.

        Code without operators, such as a compiled function, may read all that it is given.
        """
        in_place = {part.storage for part in self._written}
        self._written |= {part for part in parts_of(outputs) if part.storage not in in_place}
        self._read = self._read or set(parts_of(given))

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
        self.precision = looser(self.precision, OWN_PRECISION.get(arithmetic, "reference"))
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
    """A warning if the candidate's time is far below the roofline and the reference's is not.

    It is no reason to reject: a function that reads only part of its inputs needs less time than the roofline.
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
    older = torch.backends.cudnn if convolving else torch.backends.cuda.matmul
    newer = getattr(older, "conv", None) if convolving else older
    precision = getattr(newer, "fp32_precision", None)
    return bool(older.allow_tf32) if precision is None else precision == "tf32"
