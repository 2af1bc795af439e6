"""The environment variables of a child: what its tools need, without the judge's secrets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

INHERITED = (
    "PATH LANG LC_ALL LC_CTYPE LD_LIBRARY_PATH PYTHONPATH VIRTUAL_ENV CC CXX CUDAHOSTCXX CUDA_HOME "
    "CUDA_PATH CUDA_DEVICE_ORDER OMP_NUM_THREADS NVIDIA_VISIBLE_DEVICES TRITON_INTERPRET TRITON_LIBCUDA_PATH "
    "NVIDIA_TF32_OVERRIDE TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCHINDUCTOR_VEC_ISA_OK"
).split()
"""Variables that a child inherits. It inherits no other variables, such as API keys. Some of the
inherited variables change the precision of a GPU's arithmetic, which must be the same in the child
and in the judge. TORCHINDUCTOR_VEC_ISA_OK spares torch's compiler its trials of vector instructions."""


def child_environment(folder: Path, extra: dict[str, str] | None = None) -> dict[str, str]:
    """All environment variables of a child that works in `folder`; `extra` takes precedence."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    tools = str(Path(sys.executable).parent)
    return {
        **kept,
        "PATH": os.pathsep.join([tools, kept.get("PATH", os.defpath)]),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        # The forkserver imports Triton, which expands HOME then. Triton reads TRITON_HOME later.
        "TRITON_HOME": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        **(extra or {}),
    }
