"""Reads the properties of this machine's CPU: instruction sets, caches and the BLAS library."""

from __future__ import annotations

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
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def features() -> tuple[str, ...]:
    """The usual names of those `FEATURES` that this machine's CPU has, in the order of `FEATURES`."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", CPUINFO.read_text(), re.MULTILINE)
    flags = set(found[1].split()) if found else set()
    return tuple(name for flag, name in FEATURES.items() if flag in flags)


def cache_kb(level: int) -> float | None:
    """The size in KiB of a core's data cache at this level, or None if Linux does not report it."""
    for index in CACHES.glob("index*"):
        parts = [index / name for name in ("level", "type", "size")]
        if not all(part.exists() for part in parts):
            continue
        found, kind, size = (part.read_text().strip() for part in parts)
        if found == str(level) and kind != "Instruction" and size.endswith("K"):
            return float(size[:-1])
    return None


def blas() -> str | None:
    """The libraries behind PyTorch's matrix products, or None if PyTorch was built without any."""
    built = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    names = {"mkl": "MKL", "open": "OpenBLAS", "accelerate": "Accelerate", "blis": "BLIS"}
    libraries = [names.get(built[1], built[1])] if built else []
    if torch.backends.mkldnn.is_available():
        libraries.append("oneDNN")
    return " and ".join(libraries) or None
