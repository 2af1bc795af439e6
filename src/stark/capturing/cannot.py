"""Defines why one way of capturing a module fails. Only `capturing` turns it into an error for users."""

from __future__ import annotations


class CannotCapture(Exception):
    """One way of capturing does not fit this module. The text completes the phrase "because …"."""
