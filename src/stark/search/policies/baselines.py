"""The policies of the paper's baselines: independent attempts, and a chain of attempts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.tree import Tree


@dataclass(frozen=True)
class AlwaysRoot:
    """For the strategies `sampling` and `team-only`: never waits, since no attempt depends on another."""

    name: ClassVar[str] = "always-root"

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The root."""
        return expand(tree, ROOT)


@dataclass(frozen=True)
class Latest:
    """For the strategy `reflexion`: one attempt at a time, since each needs the last outcome; ignores `parallel`."""

    name: ClassVar[str] = "latest"

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The last finished attempt to start from, or the root; None while an attempt is in flight."""
        if tree.pending:
            return None
        starts = (node.id for node in reversed(tree.nodes) if tree.is_start(node.id))
        return expand(tree, next(starts, ROOT))
