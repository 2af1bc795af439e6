"""Whether what a program raised is its compiler's complaint: Triton and inline builds compile at the first call.

Knows compilers by the types that they raise and, where they raise a plain RuntimeError, by its first words. A program
may claim any type: that it does not compile is the least that it can gain.
"""

from __future__ import annotations

from collections.abc import Iterable

TYPES = (
    "triton.compiler.errors.CompilationError",
    "triton.runtime.errors.OutOfResources",
    "triton.runtime.errors.PTXASError",
    "torch._inductor.exc.InductorError",
    "torch._inductor.exc.CppCompileError",
)
"""Of exceptions, their bases or their causes."""

PASSES_FAILED = "PassManager::run failed"
"""Triton's later stages say no more than this; what is wrong was printed."""

SAYINGS = (
    PASSES_FAILED,
    "Error building extension '",  # torch.utils.cpp_extension
    "ninja exited with status",  # tvm_ffi.cpp
)


def is_compile_error(types: Iterable[str], text: str) -> bool:
    """Whether an exception of these types (with those of its bases and causes) and this text is a compiler's."""
    return any(name in TYPES for name in types) or any(
        f"RuntimeError: {saying}" in text for saying in SAYINGS
    )
