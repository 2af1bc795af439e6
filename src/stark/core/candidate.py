"""One attempt's program: a Python file that defines `ModelNew`, in whatever kernel language."""

from __future__ import annotations

from functools import cached_property

from stark.core.base import Frozen, digest


class Candidate(Frozen):
    """A replacement for a problem's `Model`.

    In every language the candidate is one Python file with a class `ModelNew` of the same
    interface (KernelBench's convention), so loading it is the same for all.
    """

    language: str
    """A name in `stark.languages`, such as `cpp`, `triton` or `cuda`."""

    source: str

    @cached_property
    def digest(self) -> str:
        """Identity by content: language and source."""
        return digest(self.language, self.source)
