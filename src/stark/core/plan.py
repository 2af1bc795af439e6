"""What the plan agent asks for, grounded in the source it was shown."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from stark.core.base import Frozen

ANCHOR_NAME = "[a-z][a-z0-9_]{0,39}"
"""The pattern of an anchor's whole name."""


class Anchor(Frozen):
    """A span of the selected source and what to do there ("span anchor", arXiv 2510.16996)."""

    name: str = Field(pattern=f"^{ANCHOR_NAME}$")
    first_line: int = Field(ge=1)
    """1-based, inclusive, in the source that the plan was made for."""

    last_line: int = Field(ge=1)
    """1-based, inclusive."""

    instruction: str = Field(min_length=1)

    @model_validator(mode="after")
    def _lines_in_order(self) -> Anchor:
        if self.last_line < self.first_line:
            raise ValueError(f"anchor {self.name} ends on line {self.last_line}, before it begins")
        return self


class Plan(Frozen):
    """One optimization strategy: either anchored edits or a rewrite of the whole file."""

    action: Literal["edit", "rewrite"]
    title: str = Field(default="", max_length=60)
    """A name for lists and trees; empty in replies that give none, then `strategy` stands in."""

    strategy: str = Field(min_length=1)
    anchors: tuple[Anchor, ...] = ()

    @model_validator(mode="after")
    def _anchors_go_with_edits(self) -> Plan:
        if (self.action == "edit") != bool(self.anchors):
            raise ValueError("an edit names at least one anchor, and a rewrite names none")
        return self


class Edit(Frozen):
    """What became of one anchor: the lines it marked, before and after."""

    anchor: str
    before: str
    after: str
