"""Where a role's replies come from: live models, or the recording of an earlier run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from stark.core.call import Call, Message, Reply
from stark.core.errors import PromptRefused, RecordingError
from stark.core.run import RoleModel
from stark.models import Model, open_model


class Replies(Protocol):
    """Answers the `turn`-th question of an attempt."""

    async def reply(
        self, attempt: int, turn: int, role: str, messages: tuple[Message, ...]
    ) -> Reply:
        """The reply. Raises ModelError, or RecordingError."""
        ...


def plain(text: str) -> str:
    """A reply as text that can be parsed, sent on and written as JSON, whatever the model left in it.

    Every line ends with a newline, since Python would count lines by the other ends as well; half
    of a surrogate pair becomes `?`.
    """
    unbroken = text.replace("\r\n", "\n").replace("\r", "\n")
    return unbroken.encode("utf-8", "replace").decode("utf-8")


class LiveReplies:
    """Asks each role's own model at its own temperature."""

    def __init__(self, models: Mapping[str, tuple[Model, float | None]]) -> None:
        self._models = models

    @classmethod
    def open(cls, models: Mapping[str, RoleModel]) -> LiveReplies:
        """Opens every model, each once, so that a missing key is told before any work."""
        opened = {spec: open_model(spec) for spec in {entry.model for entry in models.values()}}
        return cls({role: (opened[m.model], m.temperature) for role, m in models.items()})

    async def reply(
        self, attempt: int, turn: int, role: str, messages: tuple[Message, ...]
    ) -> Reply:
        """Ask the role's model."""
        model, temperature = self._models[role]
        reply = await model.ask(messages, temperature)
        return reply.model_copy(update={"text": plain(reply.text)})


class RecordedReplies:
    """Gives the replies of a recorded run by attempt and turn; nothing is asked and nothing paid."""

    def __init__(self, calls: Iterable[Call], unusable: Mapping[int, str] | None = None) -> None:
        """`unusable` has the attempts of which no candidate came, with the reason."""
        self._calls = {(call.attempt, call.turn): call for call in calls}
        self._unusable = unusable or {}

    async def reply(
        self, attempt: int, turn: int, role: str, messages: tuple[Message, ...]
    ) -> Reply:
        """The recorded reply, with its tokens but no price."""
        call = self._calls.get((attempt, turn))
        if call is None and attempt in self._unusable:
            raise PromptRefused(self._unusable[attempt])
        if call is None or call.role != role:
            raise RecordingError(
                f"the recording has no reply of the {role} role for attempt {attempt}, turn {turn + 1}; "
                "it was made by another version, so record the run again"
            )
        usage = call.reply.usage.model_copy(update={"dollars": 0.0, "seconds": 0.0})
        return call.reply.model_copy(update={"usage": usage})
