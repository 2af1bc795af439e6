"""Independent tries: every attempt starts from the reference. The policy of the sampling baseline."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.tree import Tree


@dataclass(frozen=True)
class AlwaysRoot:
    """Any number of attempts at once: none depends on another."""

    name: ClassVar[str] = "always-root"

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The root."""
        return expand(tree, ROOT)
