"""One question to a language model and its answer, as they were sent and received."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stark.core.base import Frozen
from stark.core.usage import Usage


class Message(Frozen):
    """One turn of a conversation."""

    speaker: Literal["system", "user", "assistant"]
    text: str


class Reply(Frozen):
    """What a model answered."""

    text: str
    model: str
    """The model that answered, as the provider names it."""

    usage: Usage = Usage()


class Call(Frozen):
    """A stored question and answer: `(attempt, turn)` names it within its run."""

    attempt: int = Field(ge=1)
    turn: int = Field(ge=0)
    """0 for the first call of the attempt, counted over all roles and re-asks."""

    role: str
    messages: tuple[Message, ...]
    reply: Reply
