"""Finds the sections of a Markdown text."""

from __future__ import annotations


def section(guide: str, title: str, level: int = 2) -> str:
    """The text under a heading, without the heading, up to the next of its level. Raises ValueError if there is none."""
    mark = "#" * level
    _, found, rest = guide.partition(f"\n{mark} {title}\n")
    if not found:
        raise ValueError(f"the guide has no section {title!r}")
    return rest.partition(f"\n{mark} ")[0].strip()
