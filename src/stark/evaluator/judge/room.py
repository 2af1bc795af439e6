"""Plans a problem's memory: whether expected values are kept, and the number of slots (`shared.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stark.core.device import Device
from stark.evaluator.judge.problem.regimes import REGIMES
from stark.evaluator.judge.problem.signature import Signature

NOMINAL_TRIALS = 2
"""Every candidate is verified on this many draws of the problem's own inputs."""

TRIALS = NOMINAL_TRIALS + len(REGIMES) + 4
"""With exchanged elements (thrice) and changed constants, the trials whose expected values are kept, if all of them fit. A problem
with integers has one more, and one with floats among its arguments; see also `Room.more_trials`."""

GPU_SHARES = {"expected": 0.08, "slots": 0.015}
CPU_BYTES = {"expected": 1 << 30, "slots": 256 << 20}
"""How much memory all kept expected values may take together, and the slots of each program: of a GPU's memory, in bytes."""

CONTEXT_BYTES = {"cuda": 600e6, "cpu": 100e6}
"""Bytes, about, that a running reference uses in addition to its slots; on a GPU for its CUDA context."""

DRAWING_S = 0.05
"""Seconds, about, that drawing the inputs of a group of calls may take: many short groups are better than few long ones."""

MOST_SLOTS, MOST_RESULTS = 51, 2000
"""Largest number of slots, and of tensors that the calls of a group return together."""


@dataclass(frozen=True)
class Room:
    """Memory plan for one problem on one device. Sizes are bytes per call."""

    device: Device
    signature: Signature
    draw_s: float
    """Seconds to draw one set of inputs."""

    more_trials: int = 1
    """One with other weights, if there are any, and one with an expanded cotangent, if gradients are judged."""

    peak_bytes: int = 0
    """Peak bytes that the first call allocates on a GPU, including its working copy of the inputs."""

    def limit_bytes(self, use: Literal["expected", "slots"]) -> float:
        """How many bytes this use may take."""
        if self.device.kind == "cuda":
            return GPU_SHARES[use] * self.device.memory_gb * 1e9
        return CPU_BYTES[use]

    @property
    def together_bytes(self) -> float:
        """Bytes that all prepared problems may hold in total: one problem's expected values, and slots of two programs."""
        return self.limit_bytes("expected") + 2 * self.limit_bytes("slots")

    @property
    def expected_bytes(self) -> int:
        """Bytes of one trial: inputs, and outputs both in float64 and in their own precision."""
        return self.signature.bytes_in + 3 * self.signature.bytes_out

    @property
    def beside_bytes(self) -> float:
        """Bytes needed to start one more reference and to compute expected values while it runs."""
        extra = max(self.peak_bytes - self.signature.bytes_in - self.signature.bytes_out, 0)
        return self.peak_bytes + CONTEXT_BYTES[self.device.kind] + self.expected_bytes + extra

    @property
    def keeps_all(self) -> bool:
        """Whether the expected values of all trials fit into their limit."""
        more = self.signature.has_integers + self.signature.has_floats + self.more_trials
        return (TRIALS + more) * self.expected_bytes <= self.limit_bytes("expected")

    @property
    def is_large(self) -> bool:
        """Whether a call takes so much that what torch keeps cached in one process is missed in another."""
        return not self.keeps_all or self.peak_bytes > self.limit_bytes("slots")

    @property
    def slots(self) -> int:
        """Number of slots: on a GPU, of calls in a group, each with its own inputs."""
        if self.device.kind == "cpu" or not self.keeps_all:
            return 1
        return self._sets(3)

    @property
    def visit_calls(self) -> int:
        """Most timed calls in a visit on a CPU, each with its own inputs."""
        return self._sets(2)

    def _sets(self, fewest: int) -> int:
        """How many sets of inputs and outputs may be drawn and kept at a time; `fewest` if drawing is slow."""
        one = max(self.signature.bytes_in + self.signature.bytes_out, 1)
        wanted = min(MOST_RESULTS / len(self.signature.outputs), DRAWING_S / self.draw_s)
        most = max(min(MOST_SLOTS, int(wanted)), fewest)
        return max(1, min(most, int(self.limit_bytes("slots") / one)))
