"""What nvcc says about the kernels that it compiles: registers, spills and shared memory.

Reads what ptxas writes with `--resource-usage`. It is found in what a build printed, which the candidate's own code
may have written as well: information, and never evidence.
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
    """One compiled kernel."""

    name: str
    """As it stands in the source, without namespaces; instances of one template share it."""

    registers: int
    """Per thread."""

    spilled_bytes: int
    """Stored to memory by each thread for want of registers."""

    shared_bytes: int
    """Per block, as far as it is known when it is compiled."""


def kernel_resources(said: str) -> tuple[KernelResources, ...]:
    """The kernels in what a build printed, in its order."""
    found: list[KernelResources] = []
    symbol, spilled = "", 0
    for line in said.splitlines():
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
    """What a kernel spills that a profiler shows by this name, with so many registers; None if it is not among these."""
    name = _without_arguments(shown_name)
    alike = [kernel for kernel in kernels if kernel.name == name]
    exact = [kernel for kernel in alike if kernel.registers == registers] or alike
    return max((kernel.spilled_bytes for kernel in exact), default=None)


def source_name(symbol: str) -> str:
    """The last name in a mangled symbol: `scale` of `_Z5scaleILi4EEvPffl`; another symbol stays as it is."""
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
    """`scale` of `void space::scale<4>(float*, float, long)`."""
    plain = re.split(r"[<(]", shown_name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    return plain.removeprefix("void ").strip().rpartition("::")[2]
