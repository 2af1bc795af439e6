"""Recognizes compilers' errors among exceptions: some programs compile only when they are called.

Those are Triton kernels and inline builds in forward. Compilers are recognized by the types that
they raise or, for a plain RuntimeError, by the first words of the message. A program may forge the
type, but it gains only the status `build_failed`.
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
"""Types of compilers' exceptions, of their bases or of their causes."""

PASSES_FAILED = "PassManager::run failed"
"""All that the exception of Triton's later stages says; the actual error is printed."""

MESSAGES = (
    PASSES_FAILED,
    "Error building extension '",  # torch.utils.cpp_extension
    "ninja exited with status",  # tvm_ffi.cpp
)
"""First words of compilers' RuntimeErrors."""


def is_compile_error(types: Iterable[str], text: str) -> bool:
    """Whether an exception is a compiler's, by its types (with bases and causes) and its text."""
    return any(name in TYPES for name in types) or any(
        f"RuntimeError: {message}" in text for message in MESSAGES
    )
