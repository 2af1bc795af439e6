"""Environment variables that keep a candidate's build in its own folder and select the architecture to build for.

PyTorch 2.x, tvm-ffi 0.1, Triton 3 and the CUDA driver read these variables. Each language combines those that it
needs.
"""

from __future__ import annotations

import re
from pathlib import Path

from stark.languages.tools import cuda_home, search_path


def common_environment(build_dir: Path) -> dict[str, str]:
    """Variables that every language needs."""
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
    """The common variables and those for tvm-ffi and for `load_inline` of tvm-ffi and of torch."""
    return common_environment(build_dir) | {
        "TVM_FFI_CACHE_DIR": str(build_dir / "tvm_ffi"),
        "TORCH_EXTENSIONS_DIR": str(build_dir / "torch_extensions"),
        # Without this variable, tvm-ffi asks torch at import whether there is a CUDA device. That
        # initializes the CUDA driver, and then the process cannot fork. With torch before 2.10,
        # tvm-ffi would also compile an extension into each build folder. Passing tensors needs neither the
        # answer nor the extension.
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
    }


def toolkit_environment(architecture: str | None) -> dict[str, str]:
    """Variables for nvcc: the toolkit's folder, and the architecture to compile for if it is known."""
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
    """The architecture as compilers write it: `8.9` for `sm_89`; from `sm_90` on with an `a`, such as `9.0a`.

    Without the `a`, compilers reject architecture-specific instructions (wgmma, TMA multicast, tcgen05). With the `a`,
    the build runs on no other architecture. That is no loss, since a candidate only runs on the device that it was
    built for. Raises ValueError if the architecture is not written like `sm_90`.
    """
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", architecture)
    if match is None:
        raise ValueError(f"{architecture!r} is not a GPU architecture such as sm_90")
    major, minor, letter = match.groups()
    return f"{major}.{minor}{letter or ('a' if int(major) >= 9 else '')}"
