"""CUDA C++: kernels compiled by nvcc through tvm-ffi or torch, or by NVRTC."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from stark.languages.base import Language
from stark.languages.building import (
    device_environment,
    extension_environment,
    toolkit_environment,
)
from stark.languages.cpp import BUILDERS
from stark.languages.reading import is_empty, names_used, texts, uses
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
"""Prefixes of names that reach NVRTC."""

INLINE = frozenset(name for name in BUILDERS if name.endswith("_inline"))
"""Builders that take source as text. The others take files, whose language is not visible here."""

CUDA_ARGUMENTS = {"cuda_sources", "with_cuda", "extra_cuda_cflags", "embed_cubin"}

CUDA_WORDS = re.compile(
    r"cuda|cublas|cudnn|cufft|cusparse|cusolver|curand|cutlass|nvrtc|cubin|ptx|__global__|\.cu\b|\bhip"
    r"|\bATen\b|\bat::|\btorch::|\btorch/",
    re.IGNORECASE,
)
"""Words in host code that calls a CUDA library, the driver, or PyTorch, which can run on the device without kernels."""


def _rule(tree: ast.Module) -> str | None:
    names = names_used(tree)
    if any(name.startswith(RUNTIME_COMPILERS) for name in names):
        return None
    if BUILDERS & names and not _is_for_the_cpu(tree):
        return None
    return "The file compiles no CUDA; call tvm_ffi.cpp.load_inline with cuda_sources."


def _is_for_the_cpu(tree: ast.Module) -> bool:
    """Whether it certainly compiles plain C++ only, in which case it is refused."""
    if any(name.startswith("torch.cuda") for name in names_used(tree)):
        return False
    if any(CUDA_WORDS.search(text) for text in texts(tree)):
        return False
    calls = uses(tree, INLINE)
    return len(calls) == len(uses(tree, BUILDERS)) and all(map(_takes_cpp_alone, calls))


def _takes_cpp_alone(call: ast.Call | None) -> bool:
    """Whether a call visibly passes no CUDA: no starred arguments, and only name and C++ sources by position."""
    if call is None or len(call.args) > 2 or any(isinstance(arg, ast.Starred) for arg in call.args):
        return False
    return all(keyword.arg and not _may_be_cuda(keyword) for keyword in call.keywords)


def _may_be_cuda(keyword: ast.keyword) -> bool:
    return keyword.arg in CUDA_ARGUMENTS and not is_empty(keyword.value)


def _environment(build_dir: Path, architecture: str | None) -> dict[str, str]:
    return (
        extension_environment(build_dir)
        | device_environment(build_dir)
        | toolkit_environment(architecture)
    )


CUDA = Language(
    name="cuda",
    title="CUDA C++",
    device_kinds=("cuda",),
    preload=("tvm_ffi", "tvm_ffi.cpp"),
    tools=(NVCC, CPP_COMPILER, NINJA, TVM_FFI, TORCH),
    rule=_rule,
    environment=_environment,
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
