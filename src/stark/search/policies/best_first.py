"""Best-first search with a quota: a few drafts, one repair for what fails, then the fastest in turn.

Four rules, the first that applies:

- a failure is **repaired** at once, the newest first, until `repairs` attempts in a row have failed;
- until `drafts` attempts have set out from the root, another **draft** does;
- with probability `fresh`, another draft all the same: a **fresh start**;
- the fastest attempt that has not had its quota of `width` attempts is **improved**.

Where all of them have had their quota or have one in flight, another draft sets out, so this
policy never waits. The drafts keep a mediocre first design from taking the whole budget, the quota
keeps a leader from doing so that is exhausted or was only lucky in its measurement, and it carries the
search past a first step that made things slower.

Textbook best-first search (Pearl, Heuristics, 1984) has neither drafts nor fresh starts; drafts before
anything else and bounded repairs are AIDE's (arXiv 2502.13138). The numbers were chosen in the
policy lab (docs/search.md), which also says what each rule is worth.
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
    """Greedy, but nobody is served twice before the others."""

    name: ClassVar[str] = "best-first"

    drafts: int = 3
    """More find better designs in 30 attempts, but leave too little of 10 for improving them."""

    repairs: int = 1
    """A second repair pays only where nearly every failure can be mended."""

    fresh: float = 0.1
    width: int = 3
    """Also the paper's count of failed attempts after which a node is given up."""

    def __post_init__(self) -> None:
        if not 0 <= self.fresh <= 1:
            raise UsageError(f"fresh is a probability, so give 0 to 1, not {self.fresh}.")
        if self.drafts < 1 or self.width < 1 or self.repairs < 0:
            raise UsageError("Give drafts and width of at least 1, and repairs of at least 0.")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """A repair, a draft, a fresh start or the best attempt with something left of its quota."""
        starts_afresh = rng.random() < self.fresh
        broken = newest_repairable(tree, self.repairs)
        if broken is not None:
            return expand(tree, broken)
        if len(tree.children(ROOT)) + tree.pending_children(ROOT) < self.drafts or starts_afresh:
            return expand(tree, ROOT)
        fastest = (id for id in tree.fastest_first() if id != ROOT and self._has_quota(tree, id))
        return expand(tree, next(fastest, ROOT))

    def _has_quota(self, tree: Tree, id: int) -> bool:
        return not tree.pending_children(id) and len(tree.children(id)) < self.width
