"""A chain: every attempt starts from the one before. The policy of the reflexion baseline."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.tree import Tree


@dataclass(frozen=True)
class Latest:
    """One attempt at a time, whatever the parallelism: the next link needs the last one's outcome."""

    name: ClassVar[str] = "latest"

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The last finished attempt that left a source, or the root; None while one is in flight."""
        if tree.pending:
            return None
        sources = (node.id for node in reversed(tree.nodes) if node.candidate is not None)
        return expand(tree, next(sources, ROOT))
