"""A chain: each attempt starts from the one before. The policy of `reflexion`."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.tree import Tree


@dataclass(frozen=True)
class Latest:
    """One attempt at a time, whatever the parallelism, since each needs the previous outcome."""

    name: ClassVar[str] = "latest"

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The last finished attempt with source code, or the root; None while an attempt is in flight."""
        if tree.pending:
            return None
        sources = (node.id for node in reversed(tree.nodes) if node.candidate is not None)
        return expand(tree, next(sources, ROOT))
