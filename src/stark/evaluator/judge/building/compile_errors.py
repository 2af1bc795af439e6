"""Recognizes compilers' errors among the exceptions that running programs raise.

Triton kernels and inline builds in forward compile only when they are called. A compiler's error is
recognized by its type or, if it is a plain RuntimeError, by the first words of its message. A
program may forge the type, but then it only gets the status `build_failed`.
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
"""An exception is a compiler's error if one of these is its type, a base of its type, or the type of one
of its causes."""

PASSES_FAILED = "PassManager::run failed"
"""The entire message of exceptions from Triton's later stages, which print the actual error."""

MESSAGES = (
    PASSES_FAILED,
    "Error building extension '",  # torch.utils.cpp_extension
    "ninja exited with status",  # tvm_ffi.cpp
)
"""First words of compilers' RuntimeErrors."""


def is_compile_error(types: Iterable[str], text: str) -> bool:
    """Whether an exception is a compiler's error. `types` names its type, its type's bases and its causes' types."""
    return any(name in TYPES for name in types) or any(
        f"RuntimeError: {message}" in text for message in MESSAGES
    )
