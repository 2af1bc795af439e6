"""Prices a hosted model's replies: by what the provider reports, else by the list prices of genai-prices."""

from __future__ import annotations

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model as Connection
from pydantic_ai.usage import RequestUsage

from stark.core.usage import Price

_SAMPLE_TOKENS = 1000
"""The number of tokens for which a list price is looked up. It is small, since some providers charge more per token
for long prompts."""


def reported_dollars(response: ModelResponse) -> float | None:
    """The cost that the provider reports with a reply; None if it reports no cost."""
    cost = (response.provider_details or {}).get("cost")
    return float(cost) if isinstance(cost, int | float) else None


def list_dollars(response: ModelResponse) -> float | None:
    """The cost of a reply by list price, with cached input at its own price; None for an unlisted model."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError):
        return None


def list_price(connection: Connection, model: str) -> Price | None:
    """A model's list price for uncached input and short prompts; None for an unlisted model."""
    prices = []
    for usage in (
        RequestUsage(input_tokens=_SAMPLE_TOKENS),
        RequestUsage(output_tokens=_SAMPLE_TOKENS),
    ):
        sample = ModelResponse(
            parts=[],
            usage=usage,
            model_name=model,
            provider_name=connection.system,
            provider_url=connection.base_url,
        )
        dollars = list_dollars(sample)
        if dollars is None:
            return None
        prices.append(dollars * 1e6 / _SAMPLE_TOKENS)
    return Price(input_per_million=prices[0], output_per_million=prices[1])
