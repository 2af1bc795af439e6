"""AIDE's search (arXiv 2502.13138): drafts first, then random repairs, else improve the fastest node.

The first rule that applies, with the numbers of AIDE's published configuration:

1. Until `drafts` attempts started from the root, another one.
2. With probability `debug_probability`, a random failing leaf after at most `depth` failed repairs in a row.
3. The fastest correct node, or another draft if there is none.

Ours: nodes with an attempt in flight are skipped.
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
    """Explores only by its drafts and repairs; otherwise it always improves the fastest node."""

    name: ClassVar[str] = "aide"

    drafts: int = 5
    debug_probability: float = 0.5
    depth: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.debug_probability <= 1:
            raise UsageError(
                f"debug_probability is a probability from 0 to 1, not {self.debug_probability}"
            )
        if self.drafts < 1 or self.depth < 1:
            raise UsageError("drafts and depth must be at least 1")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """A draft, a repair or an improvement; never waits, since a draft is always possible."""
        if tree.drafts_before(tree.next_attempt) < self.drafts:
            return expand(tree, ROOT)
        failing = [id for id in tree.leaves if 0 < failures(tree, id) <= 1 + self.depth]
        if failing and rng.random() < self.debug_probability:
            return expand(tree, rng.choice(failing))
        attempts = (id for id in tree.fastest_first() if id != ROOT)
        return expand(tree, next((id for id in attempts if not tree.pending_children(id)), ROOT))
