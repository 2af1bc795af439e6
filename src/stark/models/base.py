"""Defines what the rest of STARK sees of a language model: a name, a price, and a reply to a conversation."""

from __future__ import annotations

from typing import Protocol

from stark.core.call import Message, Reply
from stark.core.usage import Price, Usage

MAX_OUTPUT_TOKENS = 32_768
"""The usual output limit of a reply, thinking included."""


class Model(Protocol):
    """A language model. `ask` may be called again and again, and concurrently."""

    @property
    def name(self) -> str:
        """The provider and the model, such as `anthropic:claude-opus-4-8` or `exec:claude`."""

    @property
    def price(self) -> Price | None:
        """The price known before asking: the user's, else the list price; None if neither is known."""

    @property
    def max_output_tokens(self) -> int:
        """The output limit of a reply when `ask` is given none."""

    async def ask(
        self,
        messages: tuple[Message, ...],
        temperature: float | None,
        *,
        max_output_tokens: int | None = None,
    ) -> Reply:
        """Answer a conversation.

        A `temperature` of None leaves the choice to the provider; a `max_output_tokens` of None means the model's usual
        limit. If the model rejects either setting, it is asked again without that setting. A reply that reached the
        output limit is `truncated`: ask again with a larger limit.

        Raises PromptRefused if the model rejects this conversation, ModelRefused if it would reject any conversation,
        and ModelUnreachable once the retries are used up.
        """


def priced(usage: Usage, price: Price | None) -> Usage:
    """The usage. If its dollars are unknown but the price and both token counts are known, the dollars are computed."""
    if usage.dollars is not None or price is None:
        return usage
    if usage.input_tokens is None or usage.output_tokens is None:
        return usage
    dollars = price.dollars(usage.input_tokens, usage.output_tokens)
    return usage.model_copy(update={"dollars": dollars})
