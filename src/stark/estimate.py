"""Estimates a run's cost and duration before it starts.

Most constants are means over 277 calls and 167 attempts: those of the recorded runs in docs/results and examples. The
token counts assume 3 bytes per token and leave out thinking tokens. All constants are a rough guide, since models,
problems and devices differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stark.core.run import RunConfig
from stark.core.usage import Estimate, Price


class _Usual(NamedTuple):
    """Mean input and output tokens of one call of a role."""

    given: int
    answered: int


USUAL = {
    "plan": _Usual(6_900, 1_900),
    "code": _Usual(13_700, 1_800),
    "debug": _Usual(14_500, 3_800),
    "solo": _Usual(8_400, 3_400),
}

TOKENS_PER_S = 60.0
"""Assumed speed at which hosted models answer."""

JUDGE_S = {"cpp": 6.6, "triton": 2.4, "cuda": 60.0, "pytorch": 5.0}
"""Mean time for which an attempt occupies the judge, by language. The values for `cuda` and `pytorch` are guesses; nvcc takes most of it."""


def estimate(
    config: RunConfig, price_of: Callable[[str], Price | None], attempts: int, cases: int = 1
) -> Estimate:
    """Estimate cost and duration of `attempts` attempts; `price_of` returns the price of a role's model.

    Each attempt is judged in every one of the problem's `cases`.
    """
    count = max(attempts, 0)
    roles = ("solo",) if config.strategy.team == "solo" else ("plan", "code")
    usual = [USUAL[role] for role in roles]
    dollars = [price.dollars(*USUAL[role]) for role in roles if (price := price_of(role))]
    model_s = sum(call.answered for call in usual) / TOKENS_PER_S
    judge_s = cases * JUDGE_S.get(config.language, 10.0)
    return Estimate(
        attempts=count,
        calls=count * len(roles),
        tokens=count * sum(map(sum, usual)),
        dollars=count * sum(dollars) if len(dollars) == len(roles) else None,
        minutes=count * max((model_s + judge_s) / config.parallel, judge_s) / 60,
    )
