"""The ways in which a child or the forkserver can fail."""

from __future__ import annotations

from typing import Literal


class ChildFailed(Exception):
    """A child did not answer properly. For a candidate this is a result, not an error of the
    judge.
    """

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
        """The full names of the exception's types as the child reports them, with its bases and
        causes."""


class ForkserverDied(Exception):
    """The forkserver is gone: the judge's own failure."""


class SandboxFailed(Exception):
    """A layer that this machine offers could not be applied: the judge's own failure. No program
    ran.
    """
