"""Environment variables that keep a candidate's build in its own folder and target one device.

PyTorch 2.x, tvm-ffi 0.1, Triton 3 and the CUDA driver read them. Each language combines those that it needs.
"""

from __future__ import annotations

import re
from pathlib import Path

from stark.languages.tools import cuda_home, search_path


def common_environment(build_dir: Path) -> dict[str, str]:
    """Variables for every language."""
    return {
        "PATH": search_path(),
        # For kernels that the NVIDIA driver compiles itself.
        "CUDA_CACHE_PATH": str(build_dir / "cuda_cache"),
        # Many candidates build at once, and each has one or two source files.
        "MAX_JOBS": "2",
        "TORCHINDUCTOR_CACHE_DIR": str(build_dir / "inductor"),
        # Inductor's pool of compiler processes would outlive the import that started it.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def extension_environment(build_dir: Path) -> dict[str, str]:
    """For `load_inline` of tvm-ffi and of torch."""
    return common_environment(build_dir) | {
        "TVM_FFI_CACHE_DIR": str(build_dir / "tvm_ffi"),
        "TORCH_EXTENSIONS_DIR": str(build_dir / "torch_extensions"),
        # Otherwise tvm-ffi asks torch at import whether there is a CUDA device, which starts the driver,
        # after which the process cannot fork. With a torch before 2.10 it would also compile an
        # extension into each build folder. Tensors pass without either.
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
    }


def toolkit_environment(architecture: str | None) -> dict[str, str]:
    """For nvcc: the toolkit, and the one architecture if it is known."""
    variables = {
        "TVM_FFI_GPU_BACKEND": "cuda",
        # Prints the registers and spills of each kernel in the build's output.
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
    """`sm_89` in the notation of compilers, `8.9`; from `sm_90` on with architecture-specific instructions, `9.0a`.

    Compilers refuse those (wgmma, TMA multicast, tcgen05) without the letter. A candidate only runs on the device
    that it was built for, so portability does not matter. Raises ValueError for another notation.
    """
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", architecture)
    if match is None:
        raise ValueError(f"{architecture!r} is not a GPU architecture such as sm_90")
    major, minor, letter = match.groups()
    return f"{major}.{minor}{letter or ('a' if int(major) >= 9 else '')}"
