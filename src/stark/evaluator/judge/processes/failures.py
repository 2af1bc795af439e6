"""The ways in which a child or the forkserver can fail."""

from __future__ import annotations

from typing import Literal

FailureKind = Literal["crashed", "timed_out", "out_of_memory", "forged", "restless"]


class ChildFailed(Exception):
    """A child did not answer properly. For a candidate this is a result, not an internal error."""

    def __init__(self, kind: FailureKind, error: str, types: tuple[str, ...] = ()) -> None:
        super().__init__(error)
        self.kind = kind
        self.error = error
        self.types = types
        """Full names of the exception's type, its bases and its causes' types, as the child reports them."""


class ReferenceDied(Exception):
    """A running reference failed while in use: a fault of the judge, unless the candidate took the memory."""

    def __init__(self, error: str, failure: ChildFailed | None = None) -> None:
        super().__init__(error)
        self.failure = failure
        """How its process failed, if it did."""


class SandboxFailed(Exception):
    """A sandbox layer that this machine offers failed, or a child could not map the judge's memory. No program ran, so none is to blame."""
