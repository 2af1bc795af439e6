"""CuTe DSL: CUTLASS's layouts, tiled copies and tiled products in Python, compiled by `cute.compile`."""

from __future__ import annotations

import ast
from pathlib import Path

from stark.languages.base import Language
from stark.languages.building import compute_capability, extension_environment
from stark.languages.reading import names_used
from stark.languages.technique import CUDA_GRAPHS, LIBRARIES, MATMUL, ROWS, Technique
from stark.languages.tools import CUTE_DSL, TORCH, TVM_FFI


def has_kernel(tree: ast.Module) -> bool:
    """Whether the file uses the decorator that makes a CuTe DSL kernel."""
    return "cutlass.cute.kernel" in names_used(tree)


def _rule(tree: ast.Module) -> str | None:
    if not has_kernel(tree):
        return (
            "The file has no CuTe DSL kernel; write one as a function decorated with @cute.kernel."
        )
    return None


def _environment(build_dir: Path, architecture: str | None) -> dict[str, str]:
    """Variables that CuTe DSL reads when it is imported. Without an architecture it asks the driver."""
    variables = {
        "CUTE_DSL_CACHE_DIR": str(build_dir / "cute_dsl"),
        "CUTE_DSL_LINEINFO": "1",  # without it, errors of the later stages name no line
    }
    if architecture is not None:
        variables["CUTE_DSL_ARCH"] = f"sm_{compute_capability(architecture).replace('.', '')}"
    return extension_environment(build_dir) | variables


CUTEDSL = Language(
    name="cutedsl",
    title="CuTe DSL",
    device_kinds=("cuda",),
    preload=("tvm_ffi",),  # cutlass reads the environment when it is imported
    tools=(CUTE_DSL, TVM_FFI, TORCH),
    rule=_rule,
    environment=_environment,
    pays="products on tensor cores with your own pipeline, tiles and epilogue, as CUTLASS writes them; exact control of "
    "every thread's registers and copies",
    hopper=True,
    compiles_when_called=True,
    techniques=(
        CUDA_GRAPHS,
        LIBRARIES,
        Technique("cutedsl/warpgroup_mma", ("compute",), MATMUL, hopper=True),
        Technique("cutedsl/rows", ("memory", "launch"), ROWS),
        Technique("cutedsl/tiled_copies", ("memory", "launch")),
    ),
)
