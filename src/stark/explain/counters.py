"""A GPU's counters in English: what limits a kernel, and which figures to act on."""

from __future__ import annotations

from collections.abc import Iterator

from stark.core.profile import BUSY, KernelCounters

WASTED, CONFLICTING, WAITING, NOTABLE = 0.5, 0.2, 0.25, 0.1
"""Thresholds for reporting a figure. The share of moved bytes that are used is reported if it is at most `WASTED`. Bank
conflicts are reported from `CONFLICTING` on, the longest wait from `WAITING` on, and the tensor cores' load from
`NOTABLE` on."""

SATURATED = 0.8
"""From this load on, a unit alone explains a kernel's time."""

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
    """What limits a kernel: its busiest unit and, unless that is busy nearly always, the longest stall; the larger first."""
    units = {
        "memory is busy {:.0%} of the time": kernel.dram or 0.0,
        "the tensor cores are busy {:.0%} of the time": kernel.tensor or 0.0,
        "the multiprocessors work at {:.0%} of their peak": kernel.issue or 0.0,
    }
    busy = next((unit for unit in units if units[unit] >= BUSY), max(units, key=units.__getitem__))
    said = {busy.format(units[busy]): units[busy]} if units[busy] else {}
    waits = {stall: kernel.stalls[stall] for stall in WAITS if stall in kernel.stalls}
    longest = max(waits, key=lambda stall: waits[stall], default=None)
    if longest is not None and waits[longest] >= WAITING and units[busy] < SATURATED:
        wait = f"warps wait {waits[longest]:.0%} of their time for {WAITS[longest]}"
        said[wait] = waits[longest]
    return ", and ".join(sorted(said, key=lambda text: -said[text])) or "no single wait stands out"


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
