"""Finds the fenced blocks and the sections of a Markdown text."""

from __future__ import annotations


def fenced(text: str, info: str) -> list[str]:
    """The contents of all blocks fenced by three backticks whose info string is exactly `info`."""
    blocks: list[str] = []
    opened: str | None = None
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if not line.startswith("```"):
            lines.append(line)
        elif opened is None:
            opened, lines = line[3:].strip(), []
        else:
            if opened == info:
                blocks.append("".join(lines))
            opened = None
    return blocks


def section(guide: str, title: str, level: int = 2) -> str:
    """The text under a heading, without the heading, up to the next of its level. Raises ValueError if there is none."""
    mark = "#" * level
    _, found, rest = guide.partition(f"\n{mark} {title}\n")
    if not found:
        raise ValueError(f"the guide has no section {title!r}")
    return rest.partition(f"\n{mark} ")[0].strip()
