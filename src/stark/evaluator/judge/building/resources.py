"""Reads the resource usage that nvcc reports for kernels: registers, spills, shared memory.

Parses what ptxas prints with `--resource-usage`. The candidate's own code can print the same
format, so the figures are only informative.
"""

from __future__ import annotations

import re

from stark.core.base import Frozen

MOST_KERNELS = 256

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(\w{1,2000})' for")
_SPILLS = re.compile(r"^\s*\d+ bytes stack frame, (\d{1,9}) bytes spill stores")
_USED = re.compile(r"ptxas info\s*: Used (\d{1,4}) registers")
_SHARED = re.compile(r"(\d{1,9}) bytes smem")
_PART = re.compile(r"L?(\d{1,4})")


class KernelResources(Frozen):
    """The resources of one compiled kernel."""

    name: str
    """Its name in the source, without namespaces. All instances of a template have the same name."""

    registers: int
    """Registers per thread."""

    spilled_bytes: int
    """Bytes that each thread stores to memory for lack of registers."""

    shared_bytes: int
    """Bytes of shared memory per block that are known at compile time."""


def kernel_resources(output: str) -> tuple[KernelResources, ...]:
    """The kernels in a build's output, in the order of the output."""
    found: list[KernelResources] = []
    symbol, spilled = "", 0
    for line in output.splitlines():
        if entry := _ENTRY.search(line):
            symbol, spilled = entry[1], 0
        elif spills := _SPILLS.search(line):
            spilled = int(spills[1])
        elif symbol and (used := _USED.search(line)):
            shared = _SHARED.search(line)
            found.append(
                KernelResources(
                    name=source_name(symbol),
                    registers=int(used[1]),
                    spilled_bytes=spilled,
                    shared_bytes=int(shared[1]) if shared else 0,
                )
            )
            symbol = ""
    return tuple(found[:MOST_KERNELS])


def spilled_bytes(
    kernels: tuple[KernelResources, ...], shown_name: str, registers: int
) -> int | None:
    """Bytes that each thread of a kernel spills.

    `shown_name` is the kernel's name in a profiler. `registers` is its number of registers; it is
    ignored if no kernel with this name has that many. If several kernels match, returns the maximum;
    if none matches, returns None.
    """
    name = _without_arguments(shown_name)
    alike = [kernel for kernel in kernels if kernel.name == name]
    exact = [kernel for kernel in alike if kernel.registers == registers] or alike
    return max((kernel.spilled_bytes for kernel in exact), default=None)


def source_name(symbol: str) -> str:
    """The last name in a mangled symbol (`scale` for `_Z5scaleILi4EEvPffl`). Other symbols stay as they are."""
    rest = symbol.removeprefix("_Z")
    if rest == symbol:
        return symbol
    rest = rest.removeprefix("N")
    name = symbol
    while part := _PART.match(rest):
        size, end = int(part[1]), part.end()
        name, rest = rest[end : end + size], rest[end + size :]
    return name


def _without_arguments(shown_name: str) -> str:
    """`scale` for `void space::scale<4>(float*, float, long)`."""
    plain = re.split(r"[<(]", shown_name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    return plain.removeprefix("void ").strip().rpartition("::")[2]
