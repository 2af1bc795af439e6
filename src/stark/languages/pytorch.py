"""PyTorch without kernels of one's own: library calls, CUDA graphs, layouts, and PyTorch's compiler."""

from __future__ import annotations

import ast
from pathlib import Path

from stark.languages import cutedsl, gluon, triton
from stark.languages.base import Language
from stark.languages.building import common_environment
from stark.languages.cpp import BUILDERS
from stark.languages.reading import names_used
from stark.languages.technique import CUDA_GRAPHS, LIBRARIES
from stark.languages.tools import TORCH
from stark.languages.triton import kernel_folders


def _rule(tree: ast.Module) -> str | None:
    if BUILDERS & names_used(tree) or any(
        each.has_kernel(tree) for each in (triton, gluon, cutedsl)
    ):
        return "The file has a kernel of its own; use the language of that kernel."
    return None


def _environment(build_dir: Path, architecture: str | None) -> dict[str, str]:
    """Ignores the architecture: PyTorch's compiler compiles for the device on which its result is called."""
    return common_environment(build_dir) | kernel_folders(build_dir)


PYTORCH = Language(
    name="pytorch",
    title="PyTorch",
    device_kinds=("cpu", "cuda"),
    preload=(),
    tools=(TORCH,),
    rule=_rule,
    environment=_environment,
    compiles_when_called=True,
    techniques=(CUDA_GRAPHS, LIBRARIES),
)
