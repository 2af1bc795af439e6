"""What was spent on language models, and what may be spent on a run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

from pydantic import Field

from stark.core.base import Frozen

Number = TypeVar("Number", int, float)

BYTES_PER_TOKEN = 3
"""Of UTF-8, for estimates. `docs/prompts.md` has what was measured: prompts of recorded runs have 2.6 to 4.1."""


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

    @property
    def told(self) -> Usage:
        """What is known of it, with nothing in place of the rest: one call that tells nothing must lift no limit."""
        return Usage(
            calls=self.calls,
            input_tokens=self.input_tokens or 0,
            output_tokens=self.output_tokens or 0,
            dollars=self.dollars or 0.0,
            seconds=self.seconds,
        )


class Price(Frozen):
    """A model's list price in dollars per million tokens."""

    input_per_million: float = Field(ge=0)
    output_per_million: float = Field(ge=0)

    def dollars(self, input_tokens: int, output_tokens: int) -> float:
        """The price of one call."""
        return (
            input_tokens * self.input_per_million + output_tokens * self.output_per_million
        ) / 1e6


class Budget(Frozen):
    """When a run ends: whichever limit is reached first. None means no limit of that kind."""

    attempts: int = Field(default=30, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)

    def exhausted_by(self, attempts: int, told: Usage, minutes: float) -> str | None:
        """The limit that is reached, in words, or None. `told` adds up what each call told (`Usage.told`)."""
        if attempts >= self.attempts:
            return f"{self.attempts:,} attempt{'' if self.attempts == 1 else 's'} made"
        if self.tokens is not None and (told.tokens or 0) >= self.tokens:
            return f"{told.tokens:,} of {self.tokens:,} tokens used"
        if self.dollars is not None and (told.dollars or 0.0) >= self.dollars:
            return f"${told.dollars:.2f} of ${self.dollars:.2f} spent"
        if self.minutes is not None and minutes >= self.minutes:
            return f"{self.minutes:g} minutes passed"
        return None


class Tokens(Frozen):
    """A number of tokens: what models told, and apart from it the estimate for calls whose model told nothing."""

    told: int = 0
    estimated: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(told=self.told + other.told, estimated=self.estimated + other.estimated)

    def __str__(self) -> str:
        """The sum, marked by `~` where a part of it is an estimate."""
        return f"{'~' if self.estimated else ''}{self.told + self.estimated:,}"


class RoleUsage(Frozen):
    """What one role's calls took."""

    role: str
    calls: int
    input: Tokens
    output: Tokens
    """An estimate is of the reply alone; what a model thought before it is not seen."""

    dollars: float | None
    """None when the price of a call is unknown."""

    seconds: float

    def __add__(self, other: RoleUsage) -> RoleUsage:
        return RoleUsage(
            role=self.role,
            calls=self.calls + other.calls,
            input=self.input + other.input,
            output=self.output + other.output,
            dollars=_sum(self.dollars, other.dollars),
            seconds=self.seconds + other.seconds,
        )


def role_usage(role: str, usage: Usage, asked_bytes: int, answered_bytes: int) -> RoleUsage:
    """What one call took, given the length of what was sent and answered in case its model told no tokens."""
    return RoleUsage(
        role=role,
        calls=usage.calls,
        input=_tokens(usage.input_tokens, asked_bytes),
        output=_tokens(usage.output_tokens, answered_bytes),
        dollars=usage.dollars,
        seconds=usage.seconds,
    )


def by_role(parts: Iterable[RoleUsage]) -> tuple[RoleUsage, ...]:
    """Added up for each role, in the order in which the roles first came."""
    roles: dict[str, RoleUsage] = {}
    for part in parts:
        roles[part.role] = roles[part.role] + part if part.role in roles else part
    return tuple(roles.values())


def estimated_tokens(size: int) -> int:
    """About how many tokens a text of so many bytes is, rounded up."""
    return math.ceil(size / BYTES_PER_TOKEN)


def utf8_bytes(text: str) -> int:
    """The length of any text in UTF-8, as the store counts it."""
    return len(text.encode("utf-8", "surrogatepass"))


def _tokens(told: int | None, size: int) -> Tokens:
    return Tokens(estimated=estimated_tokens(size)) if told is None else Tokens(told=told)


def _sum(left: Number | None, right: Number | None) -> Number | None:
    """A sum that stays unknown once a part is unknown."""
    return None if left is None or right is None else left + right
