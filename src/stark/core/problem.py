"""Defines a problem: the source of a PyTorch program in KernelBench's format."""

from __future__ import annotations

import re
from functools import cached_property

from stark.core.base import Frozen, digest
from stark.core.declared import Declared, declared


class Problem(Frozen):
    """The text of a reference program: a `Model` (an nn.Module), `get_inputs()` and `get_init_inputs()`."""

    name: str
    """Such as `level1/19_ReLU`, or the file name without `.py`."""

    source: str

    @cached_property
    def digest(self) -> str:
        """Identifies the problem by its content; two files with the same text are one problem."""
        return digest(self.source)

    @cached_property
    def declared(self) -> Declared:
        """What the file says about itself: its cases, its objective, gradients, and the module it was captured from.

        Raises ValueError for a constant of another form, which `stark.problems.load` refuses.
        """
        return declared(self.source)

    def with_backward(self) -> Problem:
        """The problem with `BACKWARD = True`, so that gradients are verified and timed; itself if it has that already."""
        if self.declared.backward:
            return self
        return Problem(name=self.name, source=f"{self.source.rstrip()}\n\nBACKWARD = True\n")

    @property
    def slug(self) -> str:
        """The name for ids and files, without the level: at most 32 lower-case letters, digits and hyphens."""
        words = re.sub(r"[^a-z0-9]+", "-", self.name.rpartition("/")[2].lower()).strip("-")
        return words[:32].strip("-") or "run"
