"""Defines why one way of capturing fails, and the one boundary to code that may raise anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stark.core.errors import StarkError


class CannotCapture(Exception):
    """One way of capturing does not fit this module. The text completes the phrase "because …"."""


@contextmanager
def users_code(message: str, kind: type[Exception] = CannotCapture) -> Iterator[None]:
    """Run the user's code, a copy of it, or torch on it: what it raises becomes `kind` with this message.

    `REASON` in the message stands for the error.
    """
    try:
        yield
    except (CannotCapture, StarkError):
        raise
    except Exception as error:
        raise kind(message.replace("REASON", reason_of(error))) from error


def reason_of(error: BaseException) -> str:
    """An error in a few words: its class and the first line of its text."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
