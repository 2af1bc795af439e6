"""Defines a candidate: a Python file with a class `ModelNew`, in a kernel language."""

from __future__ import annotations

from functools import cached_property

from stark.core.base import Frozen, digest


class Candidate(Frozen):
    """A replacement for a problem's `Model`: one Python file whose class `ModelNew` has the interface of `Model`."""

    language: str
    """A name in `stark.languages`, such as `cpp`, `triton` or `cuda`."""

    source: str

    @cached_property
    def digest(self) -> str:
        """Identifies the candidate by its language and source."""
        return digest(self.language, self.source)
