"""A scripted language model for tests: it replies from a list or a function, and records what it was asked.

    ScriptedModel(["first reply", "second reply"])
    ScriptedModel(lambda messages: messages[-1].text.upper())
    ScriptedModel(answer, dollars=None, price=Price(input_per_million=3, output_per_million=15))
    ScriptedModel(answer, max_output_tokens=100)       # cuts longer replies, which are then `truncated`
    ScriptedModel(answer, delay_s=0.1)                 # takes time, so that calls overlap
    ScriptedModel(answer, error=PromptRefused("no"), error_every=3)   # calls 3, 6, 9, ... fail

A function may also raise, to fail one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from stark.core.call import Message, Reply
from stark.core.usage import Price, Usage
from stark.models.base import MAX_OUTPUT_TOKENS, priced

_CHARACTERS_PER_TOKEN = 4


class Asked(NamedTuple):
    """One call of `ScriptedModel.ask`."""

    messages: tuple[Message, ...]
    temperature: float | None


class ScriptedModel:
    """Replies from a script. `asked` records every call, failed ones included, and `limits` its `max_output_tokens`."""

    def __init__(
        self,
        script: Sequence[str] | Callable[[tuple[Message, ...]], str],
        *,
        name: str = "scripted",
        dollars: float | None = 0.0,
        price: Price | None = None,
        max_output_tokens: int = MAX_OUTPUT_TOKENS,
        delay_s: float = 0.0,
        error: Exception | None = None,
        error_every: int = 1,
    ):
        """Every reply costs `dollars`, or its tokens at `price` if that is None. Every `error_every`-th call raises `error`."""
        self._answer = script if callable(script) else _in_order(script)
        self._dollars = dollars
        self._delay_s = delay_s
        self._error, self._error_every = error, error_every
        self.name = name
        self.price = price
        self.max_output_tokens = max_output_tokens
        self.asked: list[Asked] = []
        self.limits: list[int | None] = []

    async def ask(
        self,
        messages: tuple[Message, ...],
        temperature: float | None,
        *,
        max_output_tokens: int | None = None,
    ) -> Reply:
        """The script's reply, cut at the output limit. Raises AssertionError once a list is used up."""
        self.asked.append(Asked(messages, temperature))
        self.limits.append(max_output_tokens)
        fails = len(self.asked) % self._error_every == 0
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if self._error is not None and fails:
            raise self._error
        whole = self._answer(messages)
        text = whole[: (max_output_tokens or self.max_output_tokens) * _CHARACTERS_PER_TOKEN]
        usage = Usage(
            input_tokens=sum(_tokens(message.text) for message in messages),
            output_tokens=_tokens(text),
            dollars=self._dollars,
            seconds=self._delay_s,
        )
        return Reply(
            text=text, model=self.name, usage=priced(usage, self.price), truncated=text != whole
        )


def _in_order(replies: Sequence[str]) -> Callable[[tuple[Message, ...]], str]:
    left = iter(replies)

    def answer(messages: tuple[Message, ...]) -> str:
        for reply in left:
            return reply
        raise AssertionError(f"the script has {len(replies)} replies and was asked for one more")

    return answer


def _tokens(text: str) -> int:
    """About what a tokenizer counts; never zero for a non-empty text."""
    return -(-len(text) // _CHARACTERS_PER_TOKEN)
