"""How much memory a problem may fill between candidates: what is kept, and how many sets of inputs lie side by side.

Works with sizes alone; knows no tensor and no program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stark.core.device import Device

GPU_SHARES = {"expected": 0.06, "slots": 0.015}
CPU_BYTES = {"expected": 1 << 30, "slots": 256 << 20}
"""How much room is for expected values, which are kept between candidates only if all fit, and for the inputs and outputs
that one program shares with the judge. Shares of a GPU's memory, bytes of a host's."""

CONTEXT_BYTES = {"cuda": 600e6, "cpu": 100e6}
"""About what a running reference holds beside what it shares with the judge: on a GPU its context."""

WORKING = 3
"""How many times a trial's expected values the judge and a candidate may fill together while both compute."""

DRAWING_S = 0.05
"""About how long drawing the inputs of one block may take: more blocks tell more than longer ones."""

MOST_SLOTS, MOST_RESULTS = 51, 2000
"""Sets of inputs and outputs side by side, and tensors that the calls of one block may return in all."""


@dataclass(frozen=True)
class Room:
    """For one problem on one device."""

    device: Device
    bytes_in: int
    bytes_out: int
    results: int
    """Tensors that one call returns."""

    trials: int
    """Whose expected values are kept, if those of all fit."""

    draw_s: float
    """What drawing one set of inputs takes."""

    peak_bytes: int = 0
    """What a call takes at most on a GPU, beside its inputs and with a copy of them."""

    def of(self, use: Literal["expected", "slots"]) -> float:
        """Bytes that may be filled for a use."""
        if self.device.kind == "cuda":
            return GPU_SHARES[use] * self.device.memory_gb * 1e9
        return CPU_BYTES[use]

    @property
    def together_bytes(self) -> float:
        """What several problems may hold together: as much as the largest that keeps its expected values."""
        return self.of("expected") + 2 * self.of("slots")

    @property
    def expected_bytes(self) -> int:
        """Of one trial: inputs, and outputs in float64 and their own precision."""
        return self.bytes_in + 3 * self.bytes_out

    @property
    def working_bytes(self) -> int:
        """What the judge and a candidate take side by side, each at its own work on one trial.

        What passes between inputs and outputs the judge has twice as large, in float64.
        """
        between = max(self.peak_bytes - self.bytes_in - self.bytes_out, 0)
        return WORKING * (self.expected_bytes + between)

    def beside_bytes(self, shared_bytes: int) -> float:
        """What one more running reference takes, with the expected values that the judge works out beside it."""
        between = max(self.peak_bytes - self.bytes_in - self.bytes_out, 0)
        context = CONTEXT_BYTES[self.device.kind]
        return shared_bytes + self.peak_bytes + context + self.expected_bytes + between

    @property
    def keeps_all(self) -> bool:
        """Whether the expected values of all trials fit into what may be kept."""
        return self.expected_bytes * self.trials <= self.of("expected")

    @property
    def slots(self) -> int:
        """How many sets of inputs and outputs lie side by side, so that every call of a block has its own.

        On a CPU they are as many as half the last-level cache holds, so that small problems are timed
        warm as ever, and one more for the untimed call before each block.
        """
        one = max(self.bytes_in + self.bytes_out, 1)
        wanted = min(MOST_RESULTS / max(self.results, 1), DRAWING_S / self.draw_s)
        most = max(min(MOST_SLOTS, int(wanted)), 3)
        room = self.of("slots")
        if self.device.kind == "cuda":
            return max(1, min(most, int(room / one))) if self.keeps_all else 1
        cache = self.device.last_level_cache_mb * 2**20 / 2
        if one <= cache / 8:
            room = cache
        return 1 + max(1, min(most - 1, int(room / one)))

    def held_bytes(self, expected: int, shared_bytes: int, running: int) -> float:
        """About what is held with so many expected draws, and as many references running.

        `shared_bytes` is what the judge shares with each of these, and with the candidate.
        """
        values = expected * self.expected_bytes
        contexts = running * CONTEXT_BYTES[self.device.kind]
        return values + (1 + running) * shared_bytes + contexts
