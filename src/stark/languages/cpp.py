"""C++ with OpenMP for the CPU, compiled through tvm-ffi or torch when the candidate is imported."""

from __future__ import annotations

import ast
from pathlib import Path

from stark.languages.base import Language
from stark.languages.building import extension_environment
from stark.languages.reading import names_used
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
"""Functions that compile C++ or CUDA source."""

MANY_STEPS = 30
"""A reference of so many operators probably loops over time in Python."""


def _rule(tree: ast.Module) -> str | None:
    if not BUILDERS & names_used(tree):
        return "The file compiles no C++; call tvm_ffi.cpp.load_inline with cpp_sources."
    keywords = (node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword))
    if "cuda_sources" in keywords:
        return "The file passes cuda_sources, but the language cpp is for the CPU; use cpp_sources."
    return None


def _environment(build_dir: Path, architecture: str | None) -> dict[str, str]:
    """Ignores the architecture, since candidates are compiled with `-march=native`."""
    return extension_environment(build_dir)


CPP = Language(
    name="cpp",
    title="C++ with OpenMP",
    device_kinds=("cpu",),
    preload=("tvm_ffi", "tvm_ffi.cpp"),
    tools=(CPP_COMPILER, NINJA, TVM_FFI, TORCH),
    rule=_rule,
    environment=_environment,
    techniques=(
        Technique("cpp/small_problems", ("launch",)),
        Technique("cpp/recurrences", ("memory", "launch"), least_steps=MANY_STEPS),
        Technique("cpp/blocking", ("memory", "compute"), frozenset({"matmul", "conv"})),
        Technique("cpp/memory_traffic", ("memory",)),
        Technique("cpp/simd"),
        Technique("cpp/threads", ("memory", "compute")),
    ),
)
