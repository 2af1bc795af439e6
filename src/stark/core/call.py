"""Types for one prompt to a language model and its reply, as sent and received."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from stark.core.base import Frozen
from stark.core.usage import Cost, Spent, Usage, spent_on, utf8_bytes


class Message(Frozen):
    """One message of a conversation. Of consecutive user messages, the provider caches all but the last."""

    speaker: Literal["system", "user", "assistant"]
    text: str


Kept = Literal["outcome", "line", "nothing"]
"""What a trimmed prompt still shows of an attempt.

`outcome`: the plan and the outcome, but not the source. `line`: one line. `nothing`: nothing at all.
"""


class Cut(Frozen):
    """An attempt that was trimmed to make a prompt fit."""

    attempt: int = Field(ge=1)
    kept: Kept


class Fit(Frozen):
    """How a prompt was trimmed to its limit. Token counts are estimates and include the system message."""

    limit_tokens: int = Field(ge=1)
    tokens: int = Field(ge=0)
    cuts: tuple[Cut, ...] = ()
    """Trimmed attempts; all others were shown in full."""

    @property
    def over(self) -> bool:
        """Whether the prompt exceeds the limit even with everything optional trimmed."""
        return self.tokens > self.limit_tokens


class Reply(Frozen):
    """A model's answer to a conversation."""

    text: str
    model: str
    """The name that the provider reports for the model that answered."""

    usage: Usage = Usage()
    truncated: bool = False
    """Whether the provider cut the reply off at the output limit."""


class Call(Frozen):
    """A stored prompt and reply, identified within its run by `(attempt, turn)`."""

    attempt: int = Field(ge=1)
    turn: int = Field(ge=0)
    """The call's number within the attempt, from 0, counting every role and every repeated prompt."""

    role: str
    messages: tuple[Message, ...]
    reply: Reply
    fit: Fit | None = None
    """How the prompt was trimmed; None in recordings made before prompts had a limit."""

    @property
    def spent(self) -> Spent:
        """The cost of the call."""
        asked = sum(utf8_bytes(message.text) for message in self.messages)
        return spent_on(self.reply.usage, asked, utf8_bytes(self.reply.text))


class Lost(Frozen):
    """A call whose reply never arrived. Its cost is unknown, so the cost reserved for it is charged."""

    role: str
    model: str
    reserved: Cost

    @property
    def spent(self) -> Spent:
        """The charge: the whole reservation, with its tokens counted as input."""
        return Spent(
            calls=1,
            input_tokens=self.reserved.tokens,
            estimated_calls=1,
            dollars=self.reserved.dollars,
            lost_calls=1,
        )


def spent_by_role(calls: Iterable[Call | Lost]) -> dict[str, Spent]:
    """The cost of calls by role, in the order of each role's first call."""
    roles: dict[str, Spent] = {}
    for call in calls:
        roles[call.role] = roles.get(call.role, Spent()) + call.spent
    return roles
