"""Thompson sampling over all nodes, as REx does for program repair (arXiv 2405.17503).

Every node is an arm, the root too. An arm's chance of leading to something better is drawn from
Beta(1 + C h, 1 + C (1 - h) + n), where h is the node's value (`lab.rank_value`; REx uses the share of tests
passed) and n the number of attempts from it, those in flight included. The highest draw is expanded, so good
nodes come first and each attempt from a node lowers its chance of the next.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from lab.rank_value import idle_nodes, rank_values
from stark.core.errors import UsageError
from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.tree import Tree


@dataclass(frozen=True)
class Thompson:
    """Draws a value for each arm and takes the highest."""

    name: ClassVar[str] = "thompson"

    trust: float = 10.0
    """C: the weight of a node's own value against the attempts from it. Half of REx's did better here."""

    def __post_init__(self) -> None:
        if self.trust < 0:
            raise UsageError(f"trust must be at least 0, not {self.trust}")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The arm with the highest draw; never waits, since the root is always open."""
        values = rank_values(tree)

        def draw(id: int) -> float:
            tried = len(tree.children(id)) + tree.pending_children(id)
            good = self.trust * values[id]
            return rng.betavariate(1 + good, 1 + self.trust - good + tried)

        return expand(tree, max([ROOT, *idle_nodes(tree)], key=draw))
