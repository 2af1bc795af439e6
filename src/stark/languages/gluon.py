"""Gluon: Triton's compiler with layouts, shared memory, barriers and asynchronous copies in the kernel's own hands."""

from __future__ import annotations

import ast

from stark.languages.base import Language
from stark.languages.technique import CUDA_GRAPHS, LIBRARIES, MATMUL, ROWS, Technique
from stark.languages.tools import C_COMPILER, GLUON_COMPILER, TORCH
from stark.languages.triton import GLUON_MODULE, TRITON, jit_decorators


def has_kernel(tree: ast.Module) -> bool:
    """Whether the file uses a decorator that makes a Gluon kernel."""
    return any(name.startswith(GLUON_MODULE) for name in jit_decorators(tree))


def _rule(tree: ast.Module) -> str | None:
    if not has_kernel(tree):
        return "The file has no Gluon kernel; write one as a function decorated with @gluon.jit."
    return None


GLUON = Language(
    name="gluon",
    title="Gluon",
    device_kinds=("cuda",),
    preload=(*TRITON.preload, "triton.experimental.gluon"),
    tools=(GLUON_COMPILER, C_COMPILER, TORCH),
    rule=_rule,
    environment=TRITON.environment,
    pays="Triton whose copies (TMA) and products (wgmma) you order yourself: products with a heavy prologue or epilogue, "
    "several products in a row, warps with different tasks",
    hopper=True,
    compiles_when_called=True,
    techniques=(
        CUDA_GRAPHS,
        LIBRARIES,
        Technique("gluon/warpgroup_mma", ("compute",), MATMUL, hopper=True),
        Technique("gluon/warp_specialization", ("compute",), MATMUL, hopper=True),
        Technique("gluon/rows_in_flight", ("memory",), ROWS, hopper=True),
        Technique("gluon/layouts", ("memory", "launch")),
    ),
)
