"""How a child, or what it is forked from, can fail."""

from __future__ import annotations

from typing import Literal


class ChildFailed(Exception):
    """A child did not answer properly: data about the candidate."""

    def __init__(
        self,
        kind: Literal["crashed", "timed_out", "out_of_memory", "forged", "restless"],
        error: str,
        types: tuple[str, ...] = (),
    ) -> None:
        super().__init__(error)
        self.kind = kind
        self.error = error
        self.types = types
        """Of the exception that it says it raised, with those of its bases and causes, by their full names."""


class ForkserverDied(Exception):
    """The process that children are forked from is gone: a fault of ours."""


class SandboxFailed(Exception):
    """A layer that this machine offers could not be put around a child: a fault of ours, and no program ran."""
