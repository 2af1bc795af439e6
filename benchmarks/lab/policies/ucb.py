"""Upper confidence bounds (UCB1; Auer, Cesa-Bianchi and Fischer 2002) over all nodes.

Every node is an arm, the root too. Its observations are its own value and those of its children
(`lab.rank_value`); an attempt in flight counts as 0 until it finishes, which spreads parallel attempts. The arm
with the highest mean + `exploration` * sqrt(ln(attempts) / observations) is expanded.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import ClassVar

from lab.rank_value import idle_nodes, rank_values
from stark.core.errors import UsageError
from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.tree import Tree


@dataclass(frozen=True)
class Ucb:
    """Takes the arm that could still be the best."""

    name: ClassVar[str] = "ucb"

    exploration: float = 0.3
    """Far below the textbook's sqrt(2), which chooses nearly uniformly with 30 attempts and ever more arms."""

    def __post_init__(self) -> None:
        if self.exploration < 0:
            raise UsageError(f"exploration must be at least 0, not {self.exploration}")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The arm with the highest bound, the newest on ties; never waits, since the root is always open."""
        values = rank_values(tree)
        bonus = self.exploration * math.sqrt(math.log(1 + len(tree.nodes) + len(tree.pending)))

        def bound(id: int) -> float:
            children = tree.children(id)
            seen = 1 + len(children) + tree.pending_children(id)
            total = values[id] + sum(values[child.id] for child in children)
            return total / seen + bonus / math.sqrt(seen)

        return expand(tree, max([ROOT, *idle_nodes(tree)], key=lambda id: (bound(id), id)))
