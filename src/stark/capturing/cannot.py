"""Defines why one way of capturing a module fails. Only `capturing` turns it into an error for users."""

from __future__ import annotations


class CannotCapture(Exception):
    """One way of capturing does not fit this module. The text completes the phrase "because …"."""


def reason_of(error: BaseException) -> str:
    """An error in a few words: its class and the first line of its text."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
