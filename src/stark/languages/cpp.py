"""C++ for the CPU: a function compiled at load through tvm-ffi or torch, with OpenMP."""

from __future__ import annotations

import ast
from pathlib import Path

from stark.languages.base import Language
from stark.languages.building import extension_environment
from stark.languages.reading import keyword_given, names_used
from stark.languages.technique import Technique
from stark.languages.tools import CPP_COMPILER, NINJA, TORCH, TVM_FFI

BUILDERS = frozenset(
    f"{module}.{function}"
    for module, functions in {
        "tvm_ffi.cpp": ("load_inline", "load", "build_inline", "build"),
        "torch.utils.cpp_extension": ("load_inline", "load"),
    }.items()
    for function in functions
)
"""The functions that compile C++ or CUDA source for a candidate."""

GENERATED = "torch._inductor.async_compile.AsyncCompile", ".cpp_pybinding"
"""What PyTorch's own compiler compiles its C++ with: a class, and the method that takes a kernel's text."""


def _rule(tree: ast.Module) -> str | None:
    if not (BUILDERS & names_used(tree) or _is_generated(names_used(tree))):
        return "The file compiles no C++; call tvm_ffi.cpp.load_inline with cpp_sources."
    if keyword_given(tree, "cuda_sources"):
        return "The file passes cuda_sources, and the language cpp is for the CPU; use cpp_sources."
    return None


def _is_generated(names: frozenset[str]) -> bool:
    compiler, method = GENERATED
    return compiler in names and any(name.endswith(method) for name in names)


def _environment(build_dir: Path, architecture: str | None) -> dict[str, str]:
    """The architecture is the machine's own: candidates compile with `-march=native`."""
    return extension_environment(build_dir)


CPP = Language(
    name="cpp",
    title="C++ with OpenMP",
    device_kinds=("cpu",),
    preload=("tvm_ffi", "tvm_ffi.cpp"),
    tools=(CPP_COMPILER, NINJA, TVM_FFI, TORCH),
    rule=_rule,
    environment=_environment,
    has_compiler=True,
    techniques=(
        Technique("cpp/small_problems", ("launch",)),
        Technique("cpp/blocking", ("memory", "compute"), frozenset({"matmul", "conv"})),
        Technique("cpp/memory_traffic", ("memory",)),
        Technique("cpp/simd"),
        Technique("cpp/threads", ("memory", "compute")),
    ),
)
