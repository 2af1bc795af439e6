"""What debugging achieved: failed attempts taken up, and those that a chain of repairs made work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol


class Attempt(Protocol):
    """As much of a node as this needs."""

    @property
    def id(self) -> int:
        """Its number in the run."""

    @property
    def parent(self) -> int:
        """Where it started."""

    @property
    def action(self) -> str:
        """What it set out to do there."""

    @property
    def works(self) -> bool:
        """Whether it came out correct."""


def failures_repaired(attempts: Iterable[Attempt]) -> tuple[int, int]:
    """Of the failed attempts that debug took up: how many there are, and how many ended in one that works."""
    repairs: defaultdict[int, list[Attempt]] = defaultdict(list)
    failed = []
    for attempt in attempts:
        if attempt.action == "debug":
            repairs[attempt.parent].append(attempt)
        if not attempt.works:
            failed.append(attempt.id)

    def mended(id: int) -> bool:
        return any(repair.works or mended(repair.id) for repair in repairs[id])

    taken = [id for id in failed if repairs[id]]
    return len(taken), sum(mended(id) for id in taken)
