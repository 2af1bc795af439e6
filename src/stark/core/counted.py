"""A number of things in words."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 attempt`, `2 attempts`, `37,500 attempts`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
