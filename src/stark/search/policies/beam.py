"""Beam search, as in KernelAgent's optimizer: generation by generation, the few fastest go on.

The first generation is `width` x `branch` attempts from the root. Of all attempts so far the `width`
fastest then get `branch` attempts each, and so on; keeping earlier survivors in the running means that
a generation that got worse is not built upon. A failure is repaired within its generation, up
to `repairs` failures in a row. A generation waits for its last attempt, so many workers idle at its end.
When a generation's survivors have all had their attempts, the root starts anew.
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
    """The survivors of each generation share its attempts."""

    name: ClassVar[str] = "beam"

    width: int = 2
    """Survivors; as many as the paper's leaderboard holds."""

    branch: int = 3
    repairs: int = 1

    def __post_init__(self) -> None:
        if min(self.width, self.branch, self.repairs) < 1:
            raise UsageError("Give beam a width, a branch and repairs of at least 1.")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The next attempt of this generation, or None while its end is in flight."""
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
        """Survivors are known once nothing is in flight, or their generation has begun."""
        return self._begun(tree, id) > 0 or not tree.pending

    def _begun(self, tree: Tree, id: int) -> int:
        return len(tree.children(id)) + tree.pending_children(id)
