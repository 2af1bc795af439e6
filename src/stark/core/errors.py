"""Defines every error that STARK raises on purpose.

A candidate that fails raises none of them: its failure is data (`core.evaluation`). These errors mean that a user's
request or STARK itself failed. Each message says what to do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class StarkError(Exception):
    """Base of all errors raised on purpose. Its text is written for users."""

    exit_code = 1


class UsageError(StarkError):
    """The request cannot be carried out as written."""

    exit_code = 2


class OptionError(UsageError):
    """An option is missing. `advice` names options in braces, which the command line writes as flags."""

    def __init__(self, reason: str, advice: str = "") -> None:
        self.reason, self.advice = reason, advice
        super().__init__(self.naming(lambda option: option))

    def naming(self, named: Callable[[str], str]) -> str:
        """The message with options named in this way."""
        advice = re.sub(r"\{(\w+)\}", lambda found: named(found[1]), self.advice)
        return f"{self.reason}: {advice}" if advice else self.reason


class ProblemError(UsageError):
    """A problem file cannot be used. The message gives the reason, and the line if the fault is in one line."""


class RecordingError(UsageError):
    """A recording cannot be read, or does not match the run that should replay it."""


class MachineError(StarkError):
    """The machine lacks something that the request needs."""

    exit_code = 2


class JudgeUnavailable(MachineError):
    """The judge could not be started, or died repeatedly."""


class DeadlyRequest(JudgeUnavailable):
    """Judges die on one request, whose candidate cannot be shown to be at fault. Other requests may be answered."""


class StoreError(MachineError):
    """The run store cannot be opened, read or written."""


class Held(StoreError):
    """Another process holds a lock, such as a run's. A bench (many runs) skips a run that is locked."""


class TryAgain(StoreError):
    """The connection to the store's database was lost, or the database undid a transaction. `Store.retried` repeats it."""

    unconfirmed: tuple[tuple[int, ...], str] | None = None
    """The leases and the token of the transaction, if the connection was lost before its commit was confirmed."""

    committed: bool = False
    """Whether that transaction was committed, once it is known."""


class ModelError(StarkError):
    """A language model gave no reply."""


class ModelRefused(ModelError):
    """The model would reject any prompt: wrong key, unknown model or address, or no quota left. The run stops."""

    exit_code = 2


class PromptRefused(ModelError):
    """The model rejects one prompt, or an `exec:` command fails on it. The attempt fails, and the run goes on."""


class ModelUnreachable(ModelError):
    """The model did not answer, even after retries. The run stops."""


class ReplyError(StarkError):
    """A reply breaks the rules of the role that it is for. The model gets the message and is asked once more."""


class JudgeDied(StarkError):
    """The judge process died during a request, which is then retried."""

    def __init__(self, reason: str, machine: bool = False) -> None:
        """`machine`: the judge's machine is at fault, for instance because its disk is full."""
        self.machine = machine
        super().__init__(reason)
