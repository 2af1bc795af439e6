"""The environment variables that keep a candidate's build in its own folder and aim it at one device.

The names are those that PyTorch 2.x, tvm-ffi 0.1, Triton 3 and the CUDA driver honour. Knows
no language: each language puts together what it needs.
"""

from __future__ import annotations

import re
from pathlib import Path

from stark.languages.tools import cuda_home, search_path


def common_environment(build_dir: Path) -> dict[str, str]:
    """What every language's build needs."""
    return {
        "PATH": search_path(),
        # Many candidates build at once, and each has one or two source files.
        "MAX_JOBS": "2",
        "TORCHINDUCTOR_CACHE_DIR": str(build_dir / "inductor"),
        # Inductor's own pool of compiling processes would outlive the import that started it.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def extension_environment(build_dir: Path) -> dict[str, str]:
    """For `load_inline` of tvm-ffi and of torch."""
    return common_environment(build_dir) | {
        "TVM_FFI_CACHE_DIR": str(build_dir / "tvm_ffi"),
        "TORCH_EXTENSIONS_DIR": str(build_dir / "torch_extensions"),
        # At import, tvm-ffi otherwise asks torch whether there is a CUDA device, which starts
        # the driver and spoils a process for forking; with a torch before 2.10 it would also
        # compile an add-on into each build folder. Tensors pass without either.
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
    }


def device_environment(build_dir: Path) -> dict[str, str]:
    """For whatever runs on an NVIDIA GPU: where the driver keeps kernels that it compiles itself."""
    return {"CUDA_CACHE_PATH": str(build_dir / "cuda_cache")}


def toolkit_environment(architecture: str | None) -> dict[str, str]:
    """For nvcc: which toolkit, and exactly one architecture where it is known."""
    variables = {
        "TVM_FFI_GPU_BACKEND": "cuda",
        # Registers and spills of each kernel, in what the build prints.
        "NVCC_APPEND_FLAGS": "--resource-usage",
        "TVM_FFI_CPP_EXTENSION_LOG_BUILD": "stdout",
    }
    home = cuda_home()
    if home is not None:
        variables["CUDA_HOME"] = str(home)
    if architecture is not None:
        target = compute_capability(architecture)
        variables |= {"TVM_FFI_CUDA_ARCH_LIST": target, "TORCH_CUDA_ARCH_LIST": target}
    return variables


def compute_capability(architecture: str) -> str:
    """`sm_89` as compilers' lists have it, `8.9`; from `sm_90` on with the chip's own instructions, `9.0a`.

    Those (wgmma, TMA multicast, tcgen05) are refused without the letter, and a candidate only
    ever runs on the device that it was built for. Raises ValueError for another notation.
    """
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", architecture)
    if match is None:
        raise ValueError(f"{architecture!r} is no GPU architecture such as sm_90")
    major, minor, letter = match.groups()
    return f"{major}.{minor}{letter or ('a' if int(major) >= 9 else '')}"
