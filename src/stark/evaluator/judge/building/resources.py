"""Reads the spills that nvcc reports for kernels.

Parses what ptxas prints with `--resource-usage`. The candidate's own code can print the same
format, so the figures are only informative.
"""

from __future__ import annotations

import re

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(\w{1,2000})' for")
_SPILLS = re.compile(r"bytes stack frame, (\d{1,9}) bytes spill stores")
_USED = re.compile(r"ptxas info\s*: Used (\d{1,4}) registers")


def spilled_bytes(output: str, shown_name: str, registers: int) -> int | None:
    """Bytes that each thread of a kernel stores to memory for lack of registers, according to a build's output.

    `shown_name` is the kernel's name in a profiler. `registers` is its number of registers; it is
    ignored if no kernel with this name has that many. If several kernels match, returns the maximum;
    if none matches, returns None.
    """
    plain = re.split(r"[<(]", shown_name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    name = plain.removeprefix("void ").strip().rpartition("::")[2]
    mangled = f"{len(name)}{name}"  # a mangled name contains each name after its length
    _, *parts = _ENTRY.split(output)
    alike: list[tuple[int, int]] = []
    for symbol, figures in zip(parts[::2], parts[1::2], strict=True):
        spills, used = _SPILLS.search(figures), _USED.search(figures)
        if spills and used and (symbol == name or mangled in symbol):
            alike.append((int(used[1]), int(spills[1])))
    exact = [spilled for used, spilled in alike if used == registers]
    return max(exact or [spilled for _, spilled in alike], default=None)
