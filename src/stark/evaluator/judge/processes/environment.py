"""The environment variables of a child: what it works with, and nothing that is secret. Knows no process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

INHERITED = (
    "PATH LANG LC_ALL LC_CTYPE LD_LIBRARY_PATH PYTHONPATH VIRTUAL_ENV CC CXX CUDAHOSTCXX CUDA_HOME "
    "CUDA_PATH CUDA_DEVICE_ORDER OMP_NUM_THREADS NVIDIA_VISIBLE_DEVICES TRITON_INTERPRET TRITON_LIBCUDA_PATH "
    "NVIDIA_TF32_OVERRIDE TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
).split()
"""Environment variables that a child gets; everything else, keys above all, stays out. What sets a GPU's precision must be
the same there as in the judge."""


def child_environment(folder: Path, extra: dict[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a child that works in `folder`."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    tools = str(Path(sys.executable).parent)
    return {
        **kept,
        "PATH": os.pathsep.join([tools, kept.get("PATH", os.defpath)]),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        # Triton looks for its home when it is imported, which was in the process that children are forked from.
        "TRITON_HOME": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        **(extra or {}),
    }
