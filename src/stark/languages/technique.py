"""Techniques beyond a guide's core: what each is good for, and which a prompt gets.

A technique is a file in `techniques/` and a line in its language's list, which says where it pays. Knows
no prompt: roles decide how much of a technique they are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import get_args

from stark.languages.guide import fenced, section
from stark.languages.work import Bound, Operator, Work

MOST = 3
"""Techniques in one prompt: more would bury the plan and the problem."""

MOST_CHARACTERS = 14_000
"""Of all techniques in one prompt: about 4,000 tokens."""


@dataclass(frozen=True)
class Technique:
    """One technique: a file with its text, and the work for which it pays."""

    name: str
    """Of its file in `techniques/`, such as `triton/split_k`."""

    bounds: tuple[Bound, ...] = get_args(Bound)
    """Where it pays: one of these binds the program."""

    operators: frozenset[Operator] = frozenset()
    """It needs one of these in the program; none are needed if this is empty."""

    least_steps: int = 1
    """It needs a program of so many operators."""

    few_outputs: bool = False
    """It is for outputs with fewer tiles than the device has processors."""

    hopper: bool = False
    """It needs what NVIDIA GPUs have from `sm_90` on."""

    def pays(self, work: Work) -> bool:
        """Whether it is worth a place in a prompt about this work."""
        return (
            work.bound in self.bounds
            and (not self.operators or bool(self.operators & work.operators))
            and work.steps >= self.least_steps
            and (work.few_outputs or not self.few_outputs)
            and (_generation(work.architecture) >= 9 or not self.hopper)
        )

    @property
    def text(self) -> str:
        """All of it: when it pays, the idea, an example, the traps."""
        return _read(self.name)

    @property
    def title(self) -> str:
        """Its heading."""
        return self.text.partition("\n")[0].removeprefix("## ")

    @property
    def lead(self) -> str:
        """What a plan needs: when it pays, and the idea."""
        paying, idea = (section(self.text, part, level=3) for part in ("When it pays", "The idea"))
        return f"## {self.title}\n{paying}\n{idea}"

    @property
    def traps(self) -> str:
        """What goes wrong with it."""
        return f"## Traps of: {self.title}\n{section(self.text, 'Traps', level=3)}"

    @property
    def example(self) -> str:
        """The source of its one example, a whole candidate."""
        (example,) = fenced(self.text, "python")
        return example


MATMUL = frozenset[Operator]({"matmul"})
ROWS = frozenset[Operator]({"softmax", "norm", "reduction"})
"""Operators that need all of a row before the first of its results."""

CUDA_GRAPHS = Technique("gpu/cuda_graphs", ("launch",), least_steps=4)
LIBRARIES = Technique("gpu/libraries", operators=frozenset({"matmul", "conv"}))
"""What every language for a GPU teaches."""


def choose(techniques: Iterable[Technique], work: Work) -> tuple[Technique, ...]:
    """The first techniques of a list that pay for this work, within the limits of a prompt."""
    chosen: list[Technique] = []
    room = MOST_CHARACTERS
    for technique in techniques:
        if len(chosen) < MOST and technique.pays(work) and len(technique.text) <= room:
            chosen.append(technique)
            room -= len(technique.text)
    return tuple(chosen)


def _generation(architecture: str) -> int:
    """The major number of an NVIDIA GPU's architecture, 9 for `sm_90`; 0 for anything else."""
    match = re.fullmatch(r"sm_(\d+)\d[af]?", architecture)
    return int(match.group(1)) if match else 0


@lru_cache
def _read(name: str) -> str:
    path = files("stark.languages").joinpath("techniques", f"{name}.md")
    return path.read_text(encoding="utf-8").strip()
