"""What a GPU's own counters saw of a kernel, and what holds it up, in words.

They are read by Nsight Compute while the kernel runs by itself with cold caches. Names of counters are NVIDIA's; the short list, the
thresholds and the words are ours.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from stark.core.base import Frozen

BUSY = 0.6
"""Share of its peak from which a unit is what holds a kernel up."""

WASTED, CONFLICTING, WAITING, NOTABLE = 0.5, 0.2, 0.25, 0.1

WAITS = {
    "long_scoreboard": "data from memory",
    "short_scoreboard": "shared memory or special functions",
    "mio_throttle": "room in the queue to shared memory",
    "lg_throttle": "room in the queue to global memory",
    "math_pipe_throttle": "the arithmetic units",
    "barrier": "other warps at a barrier",
    "wait": "the instruction before, which has a fixed latency",
    "drain": "their last stores",
    "no_instruction": "instructions, of which there are more than their cache holds",
}
"""What warps wait for, by NVIDIA's name for a stall."""


class KernelCounters(Frozen):
    """One kernel in one call; of several executions the longest. A share is None where the device did not tell it."""

    name: str
    time_ms: float
    """Of all its executions, each with a cold cache and under the profiler."""

    share: float
    """Of the time of all kernels."""

    dram_bytes: float | None = None
    """Read and written by all its executions, each with a cold cache."""

    dram: float | None = None
    """Of the peak bandwidth."""

    issue: float | None = None
    """Of the peak of the busiest unit in the multiprocessors."""

    tensor: float | None = None
    """Of the cycles of the tensor cores."""

    occupancy: float | None = None
    """Warps that were there, of those that a multiprocessor can hold."""

    l1_hits: float | None = None
    l2_hits: float | None = None
    loads_used: float | None = None
    """Of the bytes that loads of global memory move, 32 at a time."""

    stores_used: float | None = None
    bank_conflicts: float | None = None
    """Accesses to shared memory that were repeated for a conflict, of all."""

    stalls: dict[str, float] = Field(default={})
    """Share of a warp's time between two instructions, by NVIDIA's name of what it waited for."""

    def held_up(self) -> str:
        """What holds it up, as the end of a sentence."""
        if self.dram is not None and self.dram >= BUSY:
            return f"memory is busy {self.dram:.0%} of its time"
        if self.tensor is not None and self.tensor >= BUSY:
            return f"the tensor cores are busy {self.tensor:.0%} of its time"
        if self.issue is not None and self.issue >= BUSY:
            return f"the multiprocessors work at {self.issue:.0%} of their peak"
        known = {name: share for name, share in self.stalls.items() if name in WAITS}
        if known:
            name = max(known, key=lambda stall: known[stall])
            if known[name] >= WAITING:
                return f"its warps wait {known[name]:.0%} of their time for {WAITS[name]}"
        return "no unit is busy and no single wait stands out"

    def facts(self) -> Iterator[str]:
        """The counters that a reader can act on, the most telling first."""
        for name, share in (("DRAM", self.dram), ("multiprocessors", self.issue)):
            if share is not None:
                yield f"{name} {share:.0%}"
        if self.tensor is not None and self.tensor >= NOTABLE:
            yield f"tensor cores {self.tensor:.0%}"
        if self.occupancy is not None:
            yield f"{self.occupancy:.0%} of the warps it could have"
        for access, used in (("loads", self.loads_used), ("stores", self.stores_used)):
            if used is not None and 0 < used <= WASTED:
                yield f"{access} use {used:.0%} of the bytes that they move"
        if self.bank_conflicts is not None and self.bank_conflicts >= CONFLICTING:
            yield f"{self.bank_conflicts:.0%} of shared memory's accesses repeated for bank conflicts"
        hits = [
            f"{level} {share:.0%}"
            for level, share in (("L1", self.l1_hits), ("L2", self.l2_hits))
            if share is not None
        ]
        if hits:
            yield f"hits {' '.join(hits)}"
