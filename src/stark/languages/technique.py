"""Techniques beyond a language's guide, and the rule that chooses those for a problem.

A technique is a file in `techniques/` and an entry in its language's list, which says when it pays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import get_args

from stark.languages.work import Bound, Operator, Work

MOST = 3
"""Most techniques in one prompt; more would bury the plan and the problem."""

MOST_CHARACTERS = 14_000
"""Limit for all techniques in one prompt, about 4,000 tokens."""

_HOPPER = re.compile(r"sm_(9|\d\d)\d")
"""NVIDIA architectures from `sm_90` on."""


@dataclass(frozen=True)
class Technique:
    """A technique's file, and the kind of work for which it pays."""

    name: str
    """Its file in `techniques/`, such as `triton/split_k`."""

    bounds: tuple[Bound, ...] = get_args(Bound)
    """It pays if one of these limits the program."""

    operators: frozenset[Operator] = frozenset()
    """It needs one of these in the program; empty if it needs none."""

    least_steps: int = 1
    """It needs a program of at least so many steps."""

    few_outputs: bool = False
    """It needs outputs with fewer tiles than the device has processors."""

    hopper: bool = False
    """It needs an NVIDIA GPU from `sm_90` on."""

    def pays(self, work: Work) -> bool:
        """Whether a prompt about this work should include it."""
        return (
            work.bound in self.bounds
            and (not self.operators or bool(self.operators & work.operators))
            and work.steps >= self.least_steps
            and (work.few_outputs or not self.few_outputs)
            and (_HOPPER.match(work.architecture) is not None or not self.hopper)
        )

    @cached_property
    def text(self) -> str:
        """The whole file: when it pays, the idea, an example, the traps."""
        file = files("stark.languages").joinpath("techniques", f"{self.name}.md")
        return file.read_text(encoding="utf-8").strip()

    @property
    def title(self) -> str:
        """Its heading."""
        return self.text.partition("\n")[0].removeprefix("## ")

    @property
    def lead(self) -> str:
        """For plans: when it pays, and the idea."""
        paying, idea = (section(self.text, part, level=3) for part in ("When it pays", "The idea"))
        return f"## {self.title}\n{paying}\n{idea}"

    @property
    def traps(self) -> str:
        """For repairs: what goes wrong."""
        return f"## Traps of: {self.title}\n{section(self.text, 'Traps', level=3)}"


MATMUL = frozenset[Operator]({"matmul"})
ROWS = frozenset[Operator]({"softmax", "norm", "reduction"})
"""Operators that read a whole row before they write its first result."""

CUDA_GRAPHS = Technique("gpu/cuda_graphs", ("launch",), least_steps=4)
LIBRARIES = Technique("gpu/libraries", operators=frozenset({"matmul", "conv"}))
"""Techniques of every GPU language."""


def choose(techniques: Iterable[Technique], work: Work) -> tuple[Technique, ...]:
    """The first techniques that pay for this work, within the limits for a prompt."""
    chosen: list[Technique] = []
    room = MOST_CHARACTERS
    for technique in techniques:
        if len(chosen) < MOST and technique.pays(work) and len(technique.text) <= room:
            chosen.append(technique)
            room -= len(technique.text)
    return tuple(chosen)


def section(guide: str, title: str, level: int = 2) -> str:
    """The text under a heading, without the heading, up to the next of its level. Raises ValueError if there is none."""
    mark = "#" * level
    _, found, rest = guide.partition(f"\n{mark} {title}\n")
    if not found:
        raise ValueError(f"the guide has no section {title!r}")
    return rest.partition(f"\n{mark} ")[0].strip()
