"""Techniques, and the rule that chooses them for a problem.

A technique supplements a language's guide for one kind of work. It consists of a Markdown file in
`techniques/` and an entry in the language's list of techniques. The entry says for which work the technique pays off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import get_args

from stark.core.plan import first_sentence
from stark.languages.work import Bound, Operator, Work

MOST = 3
"""The maximum number of techniques taught in one prompt; more would bury the plan and the problem."""

MOST_CHARACTERS = 14_000
"""The maximum total length of the techniques taught in one prompt, about 4,000 tokens."""

HOPPER = re.compile(r"sm_(9|\d\d)\d")
"""Matches NVIDIA architectures from `sm_90` (Hopper) on."""


@dataclass(frozen=True)
class Technique:
    """A technique's file, and the kind of work for which it pays off."""

    name: str
    """The path of the technique's file in `techniques/`, without `.md`, such as `triton/split_k`."""

    bounds: tuple[Bound, ...] = get_args(Bound)
    """The technique pays off only if the program's speed is limited by one of these."""

    operators: frozenset[Operator] = frozenset()
    """The program must call at least one of these operators; if this set is empty, any program will do."""

    least_steps: int = 1
    """The program must have at least this many steps (kernels on a GPU, operators on a CPU)."""

    few_outputs: bool = False
    """Whether the technique pays off only for work whose `few_outputs` is true."""

    gpu: bool = False
    """Whether the technique needs a GPU."""

    hopper: bool = False
    """Whether the technique needs an NVIDIA GPU from `sm_90` on."""

    def pays(self, work: Work) -> bool:
        """Whether a prompt about this work should include the technique."""
        return (
            work.bound in self.bounds
            and (not self.operators or bool(self.operators & work.operators))
            and work.steps >= self.least_steps
            and (work.few_outputs or not self.few_outputs)
            and (work.architecture.startswith("sm_") or not self.gpu)
            and (HOPPER.match(work.architecture) is not None or not self.hopper)
        )

    @cached_property
    def text(self) -> str:
        """The whole text of the technique's file: its conditions, idea, example and traps."""
        file = files("stark.languages").joinpath("techniques", f"{self.name}.md")
        return file.read_text(encoding="utf-8").strip()

    @property
    def title(self) -> str:
        """The file's heading."""
        return self.text.partition("\n")[0].removeprefix("## ")

    @property
    def key(self) -> str:
        """The name by which plans refer to the technique, such as `split_k`."""
        return self.name.rpartition("/")[2]

    @property
    def line(self) -> str:
        """The line for prompts that ask for a plan: the technique's key, its title, and when it pays."""
        paying = " ".join(section(self.text, "When it pays", level=3).split())
        return f"- `{self.key}`: {self.title}. {first_sentence(paying).removesuffix('.')}."

    @property
    def traps(self) -> str:
        """The part for prompts that ask for a repair: what often goes wrong."""
        return f"## Traps of: {self.title}\n{section(self.text, 'Traps', level=3)}"


MATMUL = frozenset[Operator]({"matmul"})
ROWS = frozenset[Operator]({"softmax", "norm", "reduction"})
"""Operators that must read a whole row before they can write the row's first result."""

CUDA_GRAPHS = Technique("gpu/cuda_graphs", ("launch",), least_steps=4, gpu=True)
LIBRARIES = Technique("gpu/libraries", operators=frozenset({"matmul", "conv"}), gpu=True)
"""`CUDA_GRAPHS` and `LIBRARIES` are techniques for every GPU language."""


def paying(techniques: Iterable[Technique], *works: Work) -> tuple[Technique, ...]:
    """The techniques that pay off for this work, or for any of several cases, in the given order."""
    return tuple(technique for technique in techniques if any(map(technique.pays, works)))


def fitting(techniques: Iterable[Technique]) -> tuple[Technique, ...]:
    """The techniques without those that would exceed the limits for a prompt."""
    chosen: list[Technique] = []
    room = MOST_CHARACTERS
    for technique in techniques:
        if len(chosen) < MOST and len(technique.text) <= room:
            chosen.append(technique)
            room -= len(technique.text)
    return tuple(chosen)


def section(guide: str, title: str, level: int = 2) -> str:
    """The text between this heading and the next heading of the same level.

    Raises ValueError if the guide lacks this heading.
    """
    mark = "#" * level
    _, found, rest = guide.partition(f"\n{mark} {title}\n")
    if not found:
        raise ValueError(f"the text has no section {title!r}")
    return rest.partition(f"\n{mark} ")[0].strip()
