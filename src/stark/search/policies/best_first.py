"""Our search: best-first with a quota. A few drafts, one repair per failure, then the fastest nodes in turn.

The first rule that applies decides:

1. **Repair** the newest failing leaf, until `repairs` repairs in a row have failed.
2. **Draft**: start from the root, until `drafts` attempts have started there.
3. **Fresh start**: with probability `fresh`, start from the root once more.
4. **Improve** the fastest node that has fewer than `width` children and no child in flight.

If rule 4 finds no node, another draft starts, so this policy never waits. The drafts keep a mediocre first design from
using the whole budget. The quota `width` keeps the fastest node from using it all when that node cannot be improved
further or when its measurement was lucky. Once faster nodes have used up their quotas, slower nodes get their turn, so
the search can also build on a first step that made things slower.

Textbook best-first search (Pearl, Heuristics, 1984) has neither drafts nor fresh starts. Starting with drafts and
limiting repairs come from AIDE (arXiv 2502.13138). The defaults were chosen on simulated runs (docs/notes/search.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.errors import UsageError
from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.repairs import newest_repairable
from stark.search.tree import Tree


@dataclass(frozen=True)
class BestFirst:
    """Expands the fastest node, at most `width` times."""

    name: ClassVar[str] = "best-first"

    drafts: int = 3
    """More drafts find better designs in runs of 30 attempts. In runs of 10, they leave too few attempts for
    improvements."""

    repairs: int = 1
    """A second repair pays off only if nearly every failure can be repaired."""

    fresh: float = 0.1
    width: int = 3
    """The paper's search has the same number: there, a node is dead after 3 failed children."""

    def __post_init__(self) -> None:
        if not 0 <= self.fresh <= 1:
            raise UsageError(f"fresh is a probability from 0 to 1, not {self.fresh}")
        if self.drafts < 1 or self.width < 1 or self.repairs < 0:
            raise UsageError("drafts and width must be at least 1, and repairs at least 0")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """A repair, a draft, a fresh start or an improvement."""
        starts_afresh = rng.random() < self.fresh
        failing = newest_repairable(tree, self.repairs)
        if failing is not None:
            return expand(tree, failing)
        if tree.drafts_before(tree.next_attempt) < self.drafts or starts_afresh:
            return expand(tree, ROOT)
        fastest = (id for id in tree.fastest_first() if id != ROOT and self._has_quota(tree, id))
        return expand(tree, next(fastest, ROOT))

    def _has_quota(self, tree: Tree, id: int) -> bool:
        return not tree.pending_children(id) and len(tree.tries(id)) < self.width
