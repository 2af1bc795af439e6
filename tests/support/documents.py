"""The documents of the repository, and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTES = DOCS / "notes"

COMMAND = re.compile(r"^(stark|pip|python) [a-z-]", re.MULTILINE)
"""The beginning of a line that makes a block without a language a shell's."""


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: str
    line: int
    language: str
    """Empty for what a program prints, and for diagrams."""

    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def guides() -> list[Path]:
    """What a user reads: README and `docs`, without the laboratory notebook."""
    return [
        ROOT / "README.md",
        *sorted(path for path in DOCS.rglob("*.md") if NOTES not in path.parents),
    ]


def linked() -> list[Path]:
    """All documents whose links must resolve."""
    others = [ROOT / name for name in ("AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [*guides(), *others, ROOT / "examples" / "README.md", *sorted(NOTES.glob("*.md"))]


def blocks(path: Path) -> list[Block]:
    """The page's code blocks, in their order."""
    page, text = str(path.relative_to(ROOT)), path.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start()) + 1,
            found[1] or ("sh" if COMMAND.search(found[2]) else ""),
            found[2],
        )
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def without_code(text: str) -> str:
    """A page's text without code blocks and spans, in which brackets are no links."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def commands(path: Path) -> list[tuple[str, str]]:
    """Each line that calls `stark` in the page's shell blocks, with its place and without its comment."""
    return [
        (block.place, part.strip())
        for block in blocks(path)
        if block.language == "sh"
        for line in block.text.splitlines()
        for part in line.partition("  #")[0].split("&&")
        if part.strip().startswith("stark ")
    ]
