"""Defines the programs that are timed against themselves, from microseconds to tens of milliseconds."""

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

JOINING = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.cat((x, y))


def get_inputs():
    return [torch.randn({elements}), torch.randn({elements})]


def get_init_inputs():
    return []
"""
"""On a GPU its results can be written without a kernel, so it need not take turns with the judge."""

SIZES = {
    "cpu": "10,14,18,20,22,24,24x7,cat22",
    "cuda": "12,18,20,22,24,26,28,28x8,28x100,cat24",
}
"""Default sizes on each kind of device."""

COMPARED = {"cpu": "16,20,24", "cuda": "16,22,26,28"}
"""Default sizes for comparing methods."""


@dataclass(frozen=True)
class Size:
    """An amount of work on float32 elements.

    `22` computes the ReLU of 2^22 elements, `28x8` that of 2^28 eight times, and `cat24` joins two tensors of 2^24.
    """

    power: int
    passes: int = 1
    joins: bool = False

    def __str__(self) -> str:
        passes = f"x{self.passes}" if self.passes > 1 else ""
        return f"{'cat' if self.joins else ''}{self.power}{passes}"

    @property
    def order(self) -> tuple[bool, int, int]:
        """Sorts sizes."""
        return self.joins, self.power, self.passes

    @property
    def words(self) -> str:
        """The size as a table shows it."""
        if self.joins:
            return f"2 x 2^{self.power}, joined"
        return f"2^{self.power}" + (f", {self.passes} times" if self.passes > 1 else "")

    @property
    def problem(self) -> Problem:
        """The program as a reference."""
        program = JOINING if self.joins else PROGRAM
        source = program.format(elements=1 << self.power, passes=self.passes)
        return Problem(name=f"identical, {self.words}", source=source)

    def candidate(self, device: str) -> Candidate:
        """The same program as a candidate."""
        language = "cpp" if device == "cpu" else "triton"
        return as_candidate(
            language, self.problem.source.replace("class Model(", "class ModelNew(")
        )


def sizes(text: str) -> list[Size]:
    """Parse sizes such as `22,28x8,cat24`. Raises ValueError."""
    found = []
    for part in text.split(","):
        power, _, passes = part.removeprefix("cat").partition("x")
        found.append(Size(int(power), int(passes or 1), part.startswith("cat")))
    return found
