"""Triton: GPU kernels written as Python functions, each compiled at its first launch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from stark.languages.base import Language
from stark.languages.building import common_environment
from stark.languages.reading import names_used
from stark.languages.technique import CUDA_GRAPHS, LIBRARIES, MATMUL, ROWS, Technique
from stark.languages.tools import C_COMPILER, TORCH, TRITON_COMPILER

GLUON_MODULE = "triton.experimental.gluon."
"""Prefix of the names of Gluon, which is a part of Triton and a language of its own."""


def has_kernel(tree: ast.Module) -> bool:
    """Whether the file uses a decorator that makes a Triton kernel."""
    return any(not name.startswith(GLUON_MODULE) for name in jit_decorators(tree))


def jit_decorators(tree: ast.Module) -> Iterator[str]:
    """The names that the file uses of decorators that make kernels of Triton or Gluon."""
    return (
        name for name in names_used(tree) if name.startswith("triton.") and name.endswith(".jit")
    )


def kernel_folders(build_dir: Path) -> dict[str, str]:
    """Variables that keep Triton's kernels, and what its autotuner found, in a candidate's folder."""
    return {
        "TRITON_HOME": str(build_dir),
        "TRITON_CACHE_DIR": str(build_dir / "triton"),
        "TRITON_CACHE_AUTOTUNING": "1",
    }


def _rule(tree: ast.Module) -> str | None:
    if not has_kernel(tree):
        return "The file has no Triton kernel; write one as a function decorated with @triton.jit."
    return None


def _environment(build_dir: Path, architecture: str | None) -> dict[str, str]:
    """Ignores the architecture, since Triton compiles for the device on which a kernel is launched."""
    return common_environment(build_dir) | kernel_folders(build_dir)


TRITON = Language(
    name="triton",
    title="Triton",
    device_kinds=("cuda",),
    preload=(
        "triton",
        "triton.language",
        "triton.compiler.code_generator",
        "stark.evaluator.candidate.triton_ahead",
    ),
    tools=(TRITON_COMPILER, C_COMPILER, TORCH),
    rule=_rule,
    environment=_environment,
    pays="fused elementwise work, reductions, norms, attention and ordinary products: short code that is right soon",
    compiles_when_called=True,
    techniques=(
        CUDA_GRAPHS,
        LIBRARIES,
        Technique("triton/tensor_cores", ("compute",), MATMUL),
        Technique("triton/split_k", ("memory", "compute"), MATMUL, few_outputs=True),
        Technique("triton/fusion", least_steps=2),
        Technique("triton/online_reductions", ("memory", "launch"), ROWS),
        Technique("triton/persistent_tma", ("compute",), MATMUL, hopper=True),
        Technique("triton/wide_access", ("memory",)),
    ),
)
