"""What tuning found: the judge tries other values of a candidate's constants, and no model is asked."""

from __future__ import annotations

from pydantic import Field

from stark.core.base import Frozen
from stark.core.measurement import Speedup


class Change(Frozen):
    """Another value of a constant, both as they are written in Python."""

    name: str
    old: str
    new: str


class Tuning(Frozen):
    """How the variants of one attempt were raced."""

    variants: int = Field(ge=1)
    """All that the attempt declares, besides itself."""

    raced: int = Field(ge=0)
    """How many were tried within the seconds allowed."""

    seconds: float = Field(ge=0)
    """Seconds of the device."""

    changes: tuple[Change, ...] = ()
    """What the winner changes; empty if no variant was measurably faster."""

    gain: Speedup | None = None
    """The winner's speedup over the attempt in the last heat, which chose nothing; None without a last heat."""
