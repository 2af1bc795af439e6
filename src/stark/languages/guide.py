"""Finds the fenced blocks of a Markdown text."""

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


def section(guide: str, title: str) -> str:
    """The text under a second-level heading, without the heading. Raises ValueError if there is none."""
    _, found, rest = guide.partition(f"\n## {title}\n")
    if not found:
        raise ValueError(f"the guide has no section {title!r}")
    return rest.partition("\n## ")[0].strip()
