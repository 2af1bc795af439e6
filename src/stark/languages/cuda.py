"""CUDA C++: kernels compiled by nvcc through tvm-ffi or torch, or by NVRTC."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from stark.languages.base import Language
from stark.languages.building import extension_environment, toolkit_environment
from stark.languages.cpp import BUILDERS
from stark.languages.reading import names_used
from stark.languages.technique import CUDA_GRAPHS, LIBRARIES, MATMUL, ROWS, Technique
from stark.languages.tools import CPP_COMPILER, NINJA, NVCC, TORCH, TVM_FFI

RUNTIME_COMPILERS = (
    "torch.cuda._compile_kernel",
    "tvm_ffi.cpp.nvrtc",
    "cuda.bindings.nvrtc",
    "cuda.core",
    "cupy.RawKernel",
    "cupy.RawModule",
)
"""Prefixes of the names of functions and classes that compile with NVRTC."""

CUDA_WORDS = re.compile(
    r"cuda|cublas|cudnn|cufft|cusparse|cusolver|curand|cutlass|nvrtc|cubin|ptx|__global__|\.cu\b|\bhip"
    r"|\bATen\b|\bat::|\btorch::|\btorch/",
    re.IGNORECASE,
)
"""Words in CUDA kernels, and in host code that calls a CUDA library, the CUDA driver or PyTorch's C++ API."""


def _rule(tree: ast.Module) -> str | None:
    names = names_used(tree)
    if any(name.startswith(RUNTIME_COMPILERS) for name in names):
        return None
    if BUILDERS & names and any(CUDA_WORDS.search(text) for text in [*names, *_texts(tree)]):
        return None
    return "The file compiles no CUDA; call tvm_ffi.cpp.load_inline with cuda_sources."


def _texts(tree: ast.Module) -> Iterator[str]:
    """Every string literal, and the name of every keyword argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg


def _environment(build_dir: Path, architecture: str | None) -> dict[str, str]:
    return extension_environment(build_dir) | toolkit_environment(architecture)


CUDA = Language(
    name="cuda",
    title="CUDA C++",
    device_kinds=("cuda",),
    preload=("tvm_ffi", "tvm_ffi.cpp"),
    tools=(NVCC, CPP_COMPILER, NINJA, TVM_FFI, TORCH),
    rule=_rule,
    environment=_environment,
    pays="what blocks of tensors cannot say: work per warp or thread, irregular indices, several phases in one kernel",
    techniques=(
        CUDA_GRAPHS,
        LIBRARIES,
        Technique("cuda/tensor_cores", ("compute",), MATMUL),
        Technique("cuda/split_k", ("memory", "compute"), MATMUL, few_outputs=True),
        Technique("cuda/fusion", least_steps=2),
        Technique("cuda/online_reductions", ("memory", "launch"), ROWS),
        Technique("cuda/wide_access", ("memory",)),
    ),
)
