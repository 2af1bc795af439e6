"""The ways in which a child or the forkserver can fail."""

from __future__ import annotations

from typing import Literal


class ChildFailed(Exception):
    """A child did not answer properly. For a candidate this is a result, not an internal error."""

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
        """Full type names of the exception, its bases and causes, as reported by the child."""


class ForkserverDied(Exception):
    """The forkserver has died, which is the judge's own failure."""


class SandboxFailed(Exception):
    """A sandbox layer that this machine offers failed, a failure of the judge. No program ran."""
