"""What is to be made faster: a PyTorch program in the KernelBench form, as text."""

from __future__ import annotations

import re
from functools import cached_property

from stark.core.base import Frozen, digest


class Problem(Frozen):
    """A reference program: a `Model` (an nn.Module), `get_inputs()` and `get_init_inputs()`.

    Only text: whether it runs is found out by the judge.
    """

    name: str
    """What people call it, such as `level1/19_ReLU` or the file's stem."""

    source: str
    """The whole Python file."""

    @cached_property
    def digest(self) -> str:
        """Identity by content; two files with the same text are one problem."""
        return digest(self.source)

    @property
    def slug(self) -> str:
        """The name for ids and files: lower case, at most 32 letters, digits and hyphens, without a level."""
        words = re.sub(r"[^a-z0-9]+", "-", self.name.rpartition("/")[2].lower()).strip("-")
        return words[:32].strip("-") or "run"
