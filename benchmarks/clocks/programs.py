"""Defines the program that is timed against itself, at sizes from microseconds to tens of milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from stark.core.candidate import Candidate
from stark.core.problem import Problem
from support.candidates import as_candidate

PROGRAM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        for _ in range({passes} - 1):
            y = torch.relu(y)
        return y


def get_inputs():
    return [torch.randn({elements})]


def get_init_inputs():
    return []
"""

SIZES = {
    "cpu": "10,14,18,20,22,24,24x7",
    "cuda": "12,18,20,22,24,26,28,28x8,28x100",
}
"""Default sizes on each kind of device."""

COMPARED = {"cpu": "16,20,24", "cuda": "16,22,26,28"}
"""Default sizes for comparing methods."""


@dataclass(frozen=True)
class Size:
    """An amount of work: `22` processes 2^22 float32 elements once, `28x8` processes 2^28 eight times."""

    power: int
    passes: int = 1

    def __str__(self) -> str:
        return f"{self.power}x{self.passes}" if self.passes > 1 else str(self.power)

    @property
    def words(self) -> str:
        """The size as a table shows it."""
        return f"2^{self.power}" + (f", {self.passes} times" if self.passes > 1 else "")

    @property
    def problem(self) -> Problem:
        """The program as a reference."""
        source = PROGRAM.format(elements=1 << self.power, passes=self.passes)
        return Problem(name=f"relu of {self.words}", source=source)

    def candidate(self, device: str) -> Candidate:
        """The same program as a candidate."""
        language = "cpp" if device == "cpu" else "triton"
        return as_candidate(
            language, self.problem.source.replace("class Model(", "class ModelNew(")
        )


def sizes(text: str) -> list[Size]:
    """Parse sizes such as `22,28x8`. Raises ValueError."""
    found = []
    for part in text.split(","):
        power, _, passes = part.partition("x")
        found.append(Size(int(power), int(passes or 1)))
    return found
