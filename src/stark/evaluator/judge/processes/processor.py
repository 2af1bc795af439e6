"""Reads the properties of this machine's CPU: instruction sets, caches and the BLAS library."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import torch

FEATURES = {
    "avx2": "AVX2",
    "fma": "FMA",
    "avx_vnni": "AVX-VNNI",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 BF16",
    "avx512_fp16": "AVX-512 FP16",
    "avx512_vnni": "AVX-512 VNNI",
    "amx_bf16": "AMX BF16",
    "amx_fp16": "AMX FP16",
    "amx_int8": "AMX INT8",
    "asimd": "NEON",
    "asimddp": "NEON dot product",
    "bf16": "NEON BF16",
    "i8mm": "NEON INT8 matrix product",
    "sve": "SVE",
    "sve2": "SVE2",
}
"""CPU features that speed up kernels. Keys are the names in /proc/cpuinfo, values the usual names."""

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu")


def name() -> str:
    """The CPU's name."""
    return told("model name") or platform.processor() or platform.machine()


def features() -> tuple[str, ...]:
    """The usual names of those `FEATURES` that this machine's CPU has, in the order of `FEATURES`."""
    flags = told("flags|Features").split()
    return tuple(name for flag, name in FEATURES.items() if flag in flags)


def is_virtual() -> bool:
    """Whether this is a virtual machine, whose host may serve others with the same memory and caches."""
    return "hypervisor" in told("flags|Features").split()


def caches_kb() -> dict[tuple[int, str, str], float]:
    """Sizes in KiB of the machine's caches that Linux reports, by level, type and the cores that share the cache."""
    found = {}
    for cache in sorted(CACHES.glob("cpu[0-9]*/cache/index*")):
        parts = [cache / part for part in ("level", "type", "shared_cpu_list", "size")]
        if all(part.exists() for part in parts):
            level, kind, shared, size = (part.read_text().strip() for part in parts)
            if size.endswith("K"):
                found[int(level), kind, shared] = float(size[:-1])
    return found


def data_cache_kb(level: int) -> float | None:
    """The size in KiB of a core's data cache at this level, or None if Linux does not report it."""
    sizes = (
        kb for (at, kind, _), kb in caches_kb().items() if at == level and kind != "Instruction"
    )
    return next(sizes, None)


def blas() -> str | None:
    """The libraries behind PyTorch's matrix products, or None if PyTorch was built without any."""
    built = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    names = {"mkl": "MKL", "open": "OpenBLAS", "accelerate": "Accelerate", "blis": "BLIS"}
    libraries = [names.get(built[1], built[1])] if built else []
    if torch.backends.mkldnn.is_available():
        libraries.append("oneDNN")
    return " and ".join(libraries) or None


def told(field: str) -> str:
    """The first value of a field in /proc/cpuinfo, whose name matches; empty if there is none."""
    found = re.search(rf"^(?:{field})\s*:(.*)$", CPUINFO.read_text(), re.MULTILINE)
    return found[1].strip() if found else ""
