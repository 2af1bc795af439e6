"""AIDE's search (arXiv 2502.13138): first some drafts, then repairs by chance, else the best so far.

Its three rules in order, with the numbers of its published configuration:
until there are `drafts` = 5 attempts from the root, another one; with probability `debugs` = 0.5 a
random broken leaf, if there is one that comes after at most `depth` = 3 failed repairs in a row, so that
the fourth repair of a failure is the last; else the fastest that works, or another draft where nothing
does. Parallel attempts are ours: what has one in flight is passed over.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.errors import UsageError
from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.repairs import failures
from stark.search.tree import Tree


@dataclass(frozen=True)
class Aide:
    """Drafts, repairs by chance, and no other exploring: the fastest attempt is improved each time."""

    name: ClassVar[str] = "aide"

    drafts: int = 5
    debugs: float = 0.5
    depth: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.debugs <= 1:
            raise UsageError(f"debugs is a probability, so give 0 to 1, not {self.debugs}.")
        if self.drafts < 1 or self.depth < 1:
            raise UsageError("Give drafts and depth of at least 1.")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """A draft, a repair or an improvement; never waits, since a draft is always possible."""
        if len(tree.children(ROOT)) + tree.pending_children(ROOT) < self.drafts:
            return expand(tree, ROOT)
        broken = [id for id in tree.leaves if 0 < failures(tree, id) <= 1 + self.depth]
        if broken and rng.random() < self.debugs:
            return expand(tree, rng.choice(broken))
        attempts = (id for id in tree.fastest_first() if id != ROOT)
        return expand(tree, next((id for id in attempts if not tree.pending_children(id)), ROOT))
