"""What language-model calls cost, and what a run may spend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from pydantic import Field

from stark.core.base import Frozen

BYTES_PER_TOKEN = 3
"""UTF-8 bytes per token, for estimates. In recorded prompts, a token has 2.6 to 4.1 bytes (docs/notes/prompts.md)."""


class Usage(Frozen):
    """What a model reported about one call; None for what it did not report."""

    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)
    dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seconds: float = 0.0
    """Time until the reply arrived, retries included."""


class Cost(Frozen):
    """Expected or charged tokens and dollars of one call."""

    tokens: int = 0
    dollars: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(tokens=self.tokens + other.tokens, dollars=self.dollars + other.dollars)


class Spent(Frozen):
    """What several calls cost together. Unreported token counts are estimated from the lengths of the texts."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    estimated_calls: int = 0
    """Calls with at least one estimated token count, because the model did not report it."""

    dollars: float = 0.0
    unpriced_calls: int = 0
    """Calls of unknown price, counted as $0."""

    lost_calls: int = 0
    """Calls whose reply never arrived because the process was killed. Each is charged the cost reserved for it."""

    seconds: float = 0.0
    """The sum of the calls' waiting times. Calls that ran at the same time each count in full."""

    def __add__(self, other: Spent) -> Spent:
        names = Spent.model_fields
        return Spent(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> Cost:
        """Tokens and dollars."""
        return Cost(tokens=self.tokens, dollars=self.dollars)


def roles_together(runs: Iterable[Mapping[str, Spent]]) -> dict[str, Spent]:
    """What several runs cost together, by role."""
    roles: dict[str, Spent] = {}
    for run in runs:
        for role, spent in run.items():
            roles[role] = roles.get(role, Spent()) + spent
    return roles


def spent_on(usage: Usage, asked_bytes: int, answered_bytes: int) -> Spent:
    """What one call cost. Unreported token counts are estimated from the lengths of the prompt and the reply."""
    given, answered = usage.input_tokens, usage.output_tokens
    return Spent(
        calls=1,
        input_tokens=estimated_tokens(asked_bytes) if given is None else given,
        output_tokens=estimated_tokens(answered_bytes) if answered is None else answered,
        estimated_calls=int(given is None or answered is None),
        dollars=usage.dollars or 0.0,
        unpriced_calls=int(usage.dollars is None),
        seconds=usage.seconds,
    )


class Price(Frozen):
    """A model's price in dollars per million tokens."""

    input_per_million: float = Field(ge=0)
    output_per_million: float = Field(ge=0)

    def dollars(self, input_tokens: int, output_tokens: int) -> float:
        """The price of one call."""
        millionths = input_tokens * self.input_per_million + output_tokens * self.output_per_million
        return millionths / 1e6


class Budget(Frozen):
    """The limits of a run, which ends when it reaches the first of them. None means no limit."""

    attempts: int = Field(default=30, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)


class Estimate(Frozen):
    """What a run costs if it makes `attempts` attempts at the usual cost per call. The run may end earlier."""

    attempts: int
    calls: int
    tokens: int
    dollars: float | None
    """None if a price is unknown."""

    minutes: float


def estimated_tokens(size: int) -> int:
    """The estimated number of tokens in `size` bytes of text, rounded up."""
    return math.ceil(size / BYTES_PER_TOKEN)


def utf8_bytes(text: str) -> int:
    """The length of any text in UTF-8, lone surrogates included."""
    return len(text.encode("utf-8", "surrogatepass"))
