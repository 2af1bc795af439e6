"""What an attempt of an earlier run taught, as the program reads it from the store."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stark.core.base import Frozen
from stark.core.measurement import Speedup


class Change(Frozen):
    """An idea that made a kernel faster or slower, beyond the noise of both measurements."""

    kind: Literal["change"] = "change"
    speedup: Speedup
    """Against `eager`, or against the `parent` that the attempt changed."""


class Repair(Frozen):
    """An idea that failed at first."""

    kind: Literal["repair"] = "repair"
    failure: str
    cause: str = ""
    """What the reply that repaired it names as the cause; empty if it names none."""


class Lesson(Frozen):
    """An idea with its result, and where that was found."""

    run: str
    attempt: int = Field(ge=1)
    """The attempt that was measured, or that repaired the failure."""

    problem: str
    operators: tuple[str, ...]
    """What took most of the reference's time."""

    dtype: str
    language: str
    device: str
    idea: str
    """The plan's name."""

    result: Annotated[Change | Repair, Field(discriminator="kind")]

    @property
    def sort(self) -> Literal["gain", "repair", "loss"]:
        """What it teaches."""
        if isinstance(self.result, Repair):
            return "repair"
        return "gain" if self.result.speedup.ratio > 1 else "loss"
