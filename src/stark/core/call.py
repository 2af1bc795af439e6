"""Types for one prompt to a language model and its reply, as sent and received."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Literal

from pydantic import Field

from stark.core.base import Frozen
from stark.core.usage import Cost, Spent, Usage, spent_on, utf8_bytes


class Message(Frozen):
    """One message of a conversation. Of several user messages in a row, all but the last are cached by the provider."""

    speaker: Literal["system", "user", "assistant"]
    text: str


def prompt_of(messages: Iterable[Message]) -> str:
    """The prompt that a conversation begins with: what the user says before the first reply."""
    said = takewhile(lambda message: message.speaker != "assistant", messages)
    return "\n".join(message.text for message in said if message.speaker == "user")


Kept = Literal["outcome", "line", "nothing"]
"""What a prompt still shows of an attempt that it has too little room for: its plan and outcome without its source,
one line, or nothing."""


class Cut(Frozen):
    """Something that was left out of a prompt, so that it fits."""

    attempt: int = Field(ge=1)
    kept: Kept


class Fit(Frozen):
    """How a prompt was made to fit its limit. Its tokens are estimated (`core.usage`), instructions included."""

    limit_tokens: int = Field(ge=1)
    tokens: int = Field(ge=0)
    cuts: tuple[Cut, ...] = ()
    """By attempt; what is not named here was shown whole."""

    @property
    def over(self) -> bool:
        """Whether even what no prompt goes without is more than the limit."""
        return self.tokens > self.limit_tokens


class Reply(Frozen):
    """A model's answer to a conversation."""

    text: str
    model: str
    """The provider's name of the model that answered."""

    usage: Usage = Usage()
    truncated: bool = False
    """Whether the provider cut it at the output limit."""


class Call(Frozen):
    """A stored prompt and reply, identified within its run by `(attempt, turn)`."""

    attempt: int = Field(ge=1)
    turn: int = Field(ge=0)
    """Counts the calls of the attempt from 0, over all roles and repeated prompts."""

    role: str
    messages: tuple[Message, ...]
    reply: Reply
    fit: Fit | None = None
    """How its prompt was fitted; None in a call of before prompts had a limit."""

    @property
    def spent(self) -> Spent:
        """What it cost."""
        asked = sum(utf8_bytes(message.text) for message in self.messages)
        return spent_on(self.reply.usage, asked, utf8_bytes(self.reply.text))


class Lost(Frozen):
    """A call whose process was killed before the reply arrived: its cost is unknown, so the reservation is charged."""

    role: str
    model: str
    reserved: Cost

    @property
    def spent(self) -> Spent:
        """What it is charged as; its tokens count as input."""
        return Spent(
            calls=1,
            input_tokens=self.reserved.tokens,
            estimated_calls=1,
            dollars=self.reserved.dollars,
            lost_calls=1,
        )


def spent_by_role(calls: Iterable[Call | Lost]) -> dict[str, Spent]:
    """What calls cost, by role in the order of their first call."""
    roles: dict[str, Spent] = {}
    for call in calls:
        roles[call.role] = roles.get(call.role, Spent()) + call.spent
    return roles
