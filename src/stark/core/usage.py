"""What language-model calls cost, and what a run may spend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from pydantic import Field

from stark.core.base import Frozen

BYTES_PER_TOKEN = 3
"""UTF-8 bytes per token, for estimates; the prompts of recorded runs have 2.6 to 4.1 (docs/prompts.md)."""


class Usage(Frozen):
    """What a model reported of one call; None where it reported nothing."""

    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)
    dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seconds: float = 0.0
    """Time until the reply arrived, retries included."""


class Cost(Frozen):
    """Tokens and dollars of one call, expected or charged."""

    tokens: int = 0
    dollars: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(tokens=self.tokens + other.tokens, dollars=self.dollars + other.dollars)


class Spent(Frozen):
    """What several calls cost together; unreported tokens are estimated from the length of the texts."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    estimated_calls: int = 0
    """Calls whose tokens are estimates, since the model reported none."""

    dollars: float = 0.0
    unpriced_calls: int = 0
    """Calls of unknown price, counted as $0."""

    lost_calls: int = 0
    """Calls whose reply never arrived because the process was killed, charged as reserved."""

    seconds: float = 0.0
    """Waiting time, added up over concurrent calls too."""

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
    """What one call cost; the lengths of what was sent and answered replace token counts that were not reported."""
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
    """When a run ends: at the first limit that is reached. None is no limit."""

    attempts: int = Field(default=30, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)


class Estimate(Frozen):
    """An upper bound in attempts, with usual costs: a run may end earlier."""

    attempts: int
    calls: int
    tokens: int
    dollars: float | None
    """None if a price is unknown."""

    minutes: float


def estimated_tokens(size: int) -> int:
    """About how many tokens `size` bytes of text are, rounded up."""
    return math.ceil(size / BYTES_PER_TOKEN)


def utf8_bytes(text: str) -> int:
    """The length of any text in UTF-8, lone surrogates included."""
    return len(text.encode("utf-8", "surrogatepass"))
