"""Independent attempts: each starts from the reference. The policy of `sampling` and `team-only`."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.tree import Tree


@dataclass(frozen=True)
class AlwaysRoot:
    """Never waits, since no attempt depends on another."""

    name: ClassVar[str] = "always-root"

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The root."""
        return expand(tree, ROOT)
