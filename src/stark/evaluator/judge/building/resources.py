"""Reads the registers and spills that nvcc reports for kernels.

Parses what ptxas prints with `--resource-usage`. The candidate's own code can print the same
format, so the figures are only informative.
"""

from __future__ import annotations

import re

from stark.core.base import Frozen

MOST_KERNELS = 256

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '")
_KERNEL = re.compile(
    r"(\w{1,2000})'.*?\d+ bytes stack frame, (\d{1,9}) bytes spill stores.*?"
    r"ptxas info\s*: Used (\d{1,4}) registers",
    re.DOTALL,
)


class KernelResources(Frozen):
    """The resources of one compiled kernel."""

    symbol: str
    """Its mangled name, such as `_Z5scaleILi4EEvPffl`."""

    registers: int
    """Registers per thread."""

    spilled_bytes: int
    """Bytes that each thread stores to memory for lack of registers."""


def kernel_resources(output: str) -> tuple[KernelResources, ...]:
    """The kernels in a build's output, in the order of the output."""
    found = map(_KERNEL.match, _ENTRY.split(output)[1 : MOST_KERNELS + 1])
    return tuple(
        KernelResources(symbol=kernel[1], spilled_bytes=int(kernel[2]), registers=int(kernel[3]))
        for kernel in found
        if kernel is not None
    )


def spilled_bytes(
    kernels: tuple[KernelResources, ...], shown_name: str, registers: int
) -> int | None:
    """Bytes that each thread of a kernel spills.

    `shown_name` is the kernel's name in a profiler. `registers` is its number of registers; it is
    ignored if no kernel with this name has that many. If several kernels match, returns the maximum;
    if none matches, returns None.
    """
    plain = re.split(r"[<(]", shown_name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    name = plain.removeprefix("void ").strip().rpartition("::")[2]
    # A mangled name contains each name after its length.
    alike = [one for one in kernels if one.symbol == name or f"{len(name)}{name}" in one.symbol]
    exact = [kernel for kernel in alike if kernel.registers == registers] or alike
    return max((kernel.spilled_bytes for kernel in exact), default=None)
