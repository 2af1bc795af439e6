"""What the rest of STARK sees of a language model: a name, and one question with one reply.

Knows no provider, no kernel and no role.
"""

from __future__ import annotations

from typing import Protocol

from stark.core.call import Message, Reply


class Model(Protocol):
    """A language model that can be asked, again and again and at the same time."""

    @property
    def name(self) -> str:
        """What people call it, such as `anthropic:claude-sonnet-4-5` or `exec:claude`."""

    async def ask(self, messages: tuple[Message, ...], temperature: float | None) -> Reply:
        """The reply to a conversation; a temperature of None leaves it to the model.

        A model that takes no temperature answers without it. Raises ModelRefused where asking
        again would not help, PromptRefused where that holds for this conversation alone, and ModelUnreachable after the
        model's own retries.
        """
