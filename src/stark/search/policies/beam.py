"""A beam, after KernelAgent's optimizer: only the few fastest go on, several attempts from one place at once.

The first batch is `width` x `branch` attempts from the root. From then on the fastest of the `width`
fastest attempts that has not had `branch` attempts gets them as one batch. Who is among the fastest
is asked anew before every batch; a textbook beam asks after each whole generation and forgets the
earlier ones, and would have to build upon a generation that got worse. A failure is repaired within
its batch, up to `repairs` failures in a row. A batch waits for its last attempt, so workers
may idle at its end. When all survivors have had their attempts, the root gets another.
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
    """The few fastest have all the attempts."""

    name: ClassVar[str] = "beam"

    width: int = 2
    """Survivors; as many as the paper's leaderboard holds."""

    branch: int = 3
    repairs: int = 1

    def __post_init__(self) -> None:
        if min(self.width, self.branch, self.repairs) < 1:
            raise UsageError("Give beam a width, a branch and repairs of at least 1.")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The next attempt of this batch, or None while its end is in flight."""
        broken = newest_repairable(tree, self.repairs)
        if broken is not None:
            return expand(tree, broken)
        if self._begun(tree, ROOT) < self.width * self.branch:
            return expand(tree, ROOT)
        open_ones = [id for id in self._survivors(tree) if self._begun(tree, id) < self.branch]
        for id in open_ones:
            if self._may_begin(tree, id):
                return expand(tree, id)
        return None if tree.pending else expand(tree, ROOT)

    def _survivors(self, tree: Tree) -> list[int]:
        attempts = (id for id in tree.fastest_first() if id != ROOT)
        return list(islice(attempts, self.width))

    def _may_begin(self, tree: Tree, id: int) -> bool:
        """A batch begins when nothing else is in flight, and then goes on."""
        return self._begun(tree, id) > 0 or not tree.pending

    def _begun(self, tree: Tree, id: int) -> int:
        return len(tree.children(id)) + tree.pending_children(id)
