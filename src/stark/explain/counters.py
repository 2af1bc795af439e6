"""A GPU's counters in English: what limits a kernel, and which figures to act on."""

from __future__ import annotations

from collections.abc import Iterator

from stark.core.profile import BUSY, KernelCounters

WASTED, CONFLICTING, WAITING, NOTABLE = 0.5, 0.2, 0.25, 0.1
"""Thresholds for reporting a figure. The share of moved bytes that are used is reported if it is at most `WASTED`. Bank
conflicts are reported from `CONFLICTING` on, the longest wait from `WAITING` on, and the tensor cores' load from
`NOTABLE` on."""

WAITS = {
    "long_scoreboard": "data from memory",
    "short_scoreboard": "shared memory or special functions",
    "mio_throttle": "room in the queue to shared memory",
    "lg_throttle": "room in the queue to global memory",
    "math_pipe_throttle": "the arithmetic units",
    "barrier": "other warps at a barrier",
    "wait": "the previous instruction, which has a fixed latency",
    "drain": "their last stores to finish",
    "no_instruction": "instructions that the instruction cache does not hold",
}
"""What a warp waits for, by the name of the stall in Nsight Compute."""


def limiter(kernel: KernelCounters) -> str:
    """What limits a kernel, as a clause: a busy unit, or else the kernel's longest stall."""
    if kernel.dram is not None and kernel.dram >= BUSY:
        return f"memory is busy {kernel.dram:.0%} of the time"
    if kernel.tensor is not None and kernel.tensor >= BUSY:
        return f"the tensor cores are busy {kernel.tensor:.0%} of the time"
    if kernel.issue is not None and kernel.issue >= BUSY:
        return f"the multiprocessors work at {kernel.issue:.0%} of their peak"
    waits = {stall: kernel.stalls[stall] for stall in WAITS if stall in kernel.stalls}
    longest = max(waits, key=lambda stall: waits[stall], default=None)
    if longest is not None and waits[longest] >= WAITING:
        return f"warps wait {waits[longest]:.0%} of their time for {WAITS[longest]}"
    return "no unit is busy and no single wait stands out"


def facts(kernel: KernelCounters) -> Iterator[str]:
    """The counters worth acting on, the most telling first."""
    tensor = kernel.tensor if (kernel.tensor or 0.0) >= NOTABLE else None
    shares = {"DRAM": kernel.dram, "multiprocessors": kernel.issue, "tensor cores": tensor}
    for name, share in {**shares, "achieved occupancy": kernel.occupancy}.items():
        if share is not None:
            yield f"{name} {share:.0%}"
    for access, used in (("loads", kernel.loads_used), ("stores", kernel.stores_used)):
        if used is not None and 0 < used <= WASTED:
            yield f"{access} use {used:.0%} of the bytes that they move"
    if kernel.bank_conflicts is not None and kernel.bank_conflicts >= CONFLICTING:
        yield f"{kernel.bank_conflicts:.0%} of shared-memory accesses were repeated because of bank conflicts"
    levels = (("L1", kernel.l1_hits), ("L2", kernel.l2_hits))
    hits = [f"{level} {share:.0%}" for level, share in levels if share is not None]
    if hits:
        yield f"cache hits {' '.join(hits)}"
