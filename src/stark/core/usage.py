"""What was spent on language models, and what may be spent on a run."""

from __future__ import annotations

from typing import TypeVar

from pydantic import Field

from stark.core.base import Frozen

Number = TypeVar("Number", int, float)


class Usage(Frozen):
    """Tokens and price of one or more calls; an unknown number is None, never zero."""

    calls: int = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    dollars: float | None = 0.0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            dollars=_sum(self.dollars, other.dollars),
            seconds=self.seconds + other.seconds,
        )

    @property
    def tokens(self) -> int | None:
        """Input and output tokens together."""
        return _sum(self.input_tokens, self.output_tokens)


class Budget(Frozen):
    """When a run ends: whichever limit is reached first. None means no limit of that kind."""

    attempts: int = Field(default=30, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)

    def exhausted_by(self, attempts: int, usage: Usage, minutes: float) -> str | None:
        """The limit that is reached, in words, or None. An unknown price never reaches one."""
        if attempts >= self.attempts:
            return f"{self.attempts} attempts made"
        if self.tokens is not None and (usage.tokens or 0) >= self.tokens:
            return f"{usage.tokens:,} of {self.tokens:,} tokens used"
        if self.dollars is not None and (usage.dollars or 0.0) >= self.dollars:
            return f"${usage.dollars:.2f} of ${self.dollars:.2f} spent"
        if self.minutes is not None and minutes >= self.minutes:
            return f"{self.minutes:g} minutes passed"
        return None


def _sum(left: Number | None, right: Number | None) -> Number | None:
    """A sum that stays unknown once a part is unknown."""
    return None if left is None or right is None else left + right
