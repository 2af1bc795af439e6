"""The plan agent's result: an optimization strategy, usually with anchors in the source that the agent was shown."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from stark.core.base import Frozen

ANCHOR_NAME = "[a-z][a-z0-9_]{0,39}"
"""The regular expression that the whole name of an anchor must match."""

NAME_LENGTH = 60
"""The most characters of a plan's title or name."""

SUMMARY_LENGTH = 360
"""The most characters of a plan's summary: three lines."""

_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|`+)(?=\S)(.+?)(?<=\S)\1(?!\w)")
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "\u2018": "\u2019", "«": "»"}
_SENTENCE_END = re.compile(r"(?<!\be\.g|\bi\.e)[.!?](?=\s)")
_HEADING = re.compile(r"\W*What (?:limits|binds)\b[^.:!?\n]{0,40}[.:\n]\W*", re.IGNORECASE)


class Anchor(Frozen):
    """A span of the selected source and what to do there ("span anchor", arXiv 2510.16996)."""

    name: str = Field(pattern=f"^{ANCHOR_NAME}$")
    first_line: int = Field(ge=1)
    """This and `last_line` count from 1 in the source that the plan was made for. Both lines belong to the anchor."""

    last_line: int = Field(ge=1)
    instruction: str = Field(min_length=1)


class Plan(Frozen):
    """One optimization strategy: either anchored edits or a rewrite of the whole file."""

    action: Literal["edit", "rewrite"]
    title: str = Field(default="", max_length=NAME_LENGTH)
    """A name for the idea; empty if the reply gave none. To show a plan to users, use `name`."""

    language: str | None = None
    """The language that a rewrite is written in, if the run lets the planner choose."""

    techniques: tuple[str, ...] = ()
    """The keys of the techniques that the coder is to be taught (`languages.technique`)."""

    strategy: str = Field(min_length=1)
    anchors: tuple[Anchor, ...] = ()
    """At least one for an edit, none for a rewrite."""

    @property
    def name(self) -> str:
        """A name for screens and prompts: the title, else the start of the strategy's first sentence."""
        return self.title or short_name(first_sentence(self.strategy))

    @property
    def summary(self) -> str:
        """What all but the coder are shown of the plan besides its name: the strategy's first paragraph, shortened."""
        paragraph = " ".join(self.strategy.strip().partition("\n\n")[0].split())
        return (
            paragraph if len(paragraph) <= SUMMARY_LENGTH else short_name(paragraph, SUMMARY_LENGTH)
        )


class Edit(Frozen):
    """The lines of one anchor before and after the edit."""

    anchor: str
    before: str
    after: str


def first_sentence(text: str) -> str:
    """The text up to the end of its first sentence, without a heading such as `What limits it:` before it."""
    heading = _HEADING.match(text)
    said = text[heading.end() :] if heading else ""
    return _SENTENCE_END.split((said or text).strip(), maxsplit=1)[0]


def short_name(text: str, most: int = NAME_LENGTH) -> str:
    """The first line with text, without markup and final full stop, cut between words to at most `most` characters."""
    plain = next((line for line in text.splitlines() if line.strip()), "")
    plain = re.sub(r"^\s*(?:#+|[-*+])\s+", "", plain).strip()
    while (stripped := unquoted(_EMPHASIS.sub(r"\2", plain)).removesuffix(".")) != plain:
        plain = stripped
    if len(plain) <= most:
        return plain
    kept = plain[: most - 1]
    if plain[len(kept)] != " ":
        kept = kept.rpartition(" ")[0] or kept
    return kept.rstrip(" ,;:") + "…"


def unquoted(text: str) -> str:
    """The text without the quotation marks around it, if it has a pair of them."""
    text = text.strip()
    quoted = len(text) > 1 and _QUOTES.get(text[0]) == text[-1]
    return text[1:-1].strip() if quoted else text
