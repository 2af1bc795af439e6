"""Upper confidence bounds (UCB1; Auer, Cesa-Bianchi and Fischer 2002) over all places at once.

Every place is an arm. What is known of an arm is its own worth and the worths of what came from it
(`search.worth`); attempts in flight count as worth nothing until they finish, which spreads parallel
attempts. The arm with the highest mean plus `courage` * sqrt(ln(attempts) / observations) is taken.
The root is an arm like any other: when fresh starts do well, there will be more of them.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.errors import UsageError
from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.tree import Tree
from stark.search.worth import at_rest, worths


@dataclass(frozen=True)
class Ucb:
    """The optimist: an arm is as good as it may still be."""

    name: ClassVar[str] = "ucb"

    courage: float = 0.3
    """Far below the textbook's sqrt(2): it makes nearly uniform choices of 30 attempts among ever more arms."""

    def __post_init__(self) -> None:
        if self.courage < 0:
            raise UsageError(f"Give ucb a courage of at least 0, not {self.courage}.")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The arm with the highest bound, the newest of equals; never waits, for the root is open."""
        worth = worths(tree)
        bonus = self.courage * math.sqrt(math.log(1 + len(tree.nodes) + len(tree.pending)))

        def bound(id: int) -> float:
            children = tree.children(id)
            seen = 1 + len(children) + tree.pending_children(id)
            total = worth[id] + sum(worth[child.id] for child in children)
            return total / seen + bonus / math.sqrt(seen)

        return expand(tree, max([ROOT, *at_rest(tree)], key=lambda id: (bound(id), id)))
