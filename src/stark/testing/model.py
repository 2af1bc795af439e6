"""A language model without a model: replies from a script, and a record of what was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stark.core.call import Message, Reply
from stark.core.usage import Usage

_CHARACTERS_PER_TOKEN = 4


class Asked(NamedTuple):
    """One question that a scripted model was asked."""

    messages: tuple[Message, ...]
    temperature: float | None


class ScriptedModel:
    """Answers with a list's replies in order, or with what a function makes of each conversation."""

    def __init__(
        self,
        script: Sequence[str] | Callable[[tuple[Message, ...]], str],
        *,
        name: str = "scripted",
        dollars: float | None = 0.0,
    ):
        """Keeps the script; every reply costs `dollars`. A function may raise to fail the call."""
        self._answer = script if callable(script) else _in_order(script)
        self._dollars = dollars
        self.name = name
        self.asked: list[Asked] = []

    async def ask(self, messages: tuple[Message, ...], temperature: float | None) -> Reply:
        """The script's next reply; AssertionError when a list of replies is used up."""
        self.asked.append(Asked(messages, temperature))
        text = self._answer(messages)
        usage = Usage(
            calls=1,
            input_tokens=sum(_tokens(message.text) for message in messages),
            output_tokens=_tokens(text),
            dollars=self._dollars,
        )
        return Reply(text=text, model=self.name, usage=usage)


def _in_order(replies: Sequence[str]) -> Callable[[tuple[Message, ...]], str]:
    left = iter(replies)

    def answer(messages: tuple[Message, ...]) -> str:
        for reply in left:
            return reply
        raise AssertionError(f"the script has {len(replies)} replies and was asked for one more")

    return answer


def _tokens(text: str) -> int:
    """About what a tokenizer counts; never zero for a text."""
    return -(-len(text) // _CHARACTERS_PER_TOKEN)
