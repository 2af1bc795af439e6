"""A beam search, after KernelAgent's optimizer: only the few fastest nodes are expanded, in batches.

The first batch is `width` x `branch` attempts from the root. Each later batch is `branch` attempts from the
fastest of the `width` fastest nodes that has not had a batch yet. The `width` fastest are determined again
before every batch; a textbook beam does so once a generation and drops earlier generations, so it has to
continue even from a generation that got slower.

A failure is repaired within its batch, up to `repairs` failures in a row. A batch waits for its last attempt,
so workers may idle at its end. Once all survivors have had their batch, the root gets another attempt.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from stark.core.errors import UsageError
from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.repairs import newest_repairable
from stark.search.tree import Tree


@dataclass(frozen=True)
class Beam:
    """Spends all attempts on the few fastest nodes."""

    name: ClassVar[str] = "beam"

    width: int = 2
    """Survivors; as many as the paper's leaderboard keeps."""

    branch: int = 3
    repairs: int = 1

    def __post_init__(self) -> None:
        if min(self.width, self.branch, self.repairs) < 1:
            raise UsageError("width, branch and repairs must be at least 1")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The next attempt of the current batch, or None while the batch finishes."""
        failing = newest_repairable(tree, self.repairs)
        if failing is not None:
            return expand(tree, failing)
        if _started(tree, ROOT) < self.width * self.branch:
            return expand(tree, ROOT)
        survivors = islice((id for id in tree.fastest_first() if id != ROOT), self.width)
        for id in survivors:
            started = _started(tree, id)
            if started < self.branch and (started or not tree.pending):
                return expand(tree, id)
        return None if tree.pending else expand(tree, ROOT)


def _started(tree: Tree, id: int) -> int:
    return len(tree.children(id)) + tree.pending_children(id)
