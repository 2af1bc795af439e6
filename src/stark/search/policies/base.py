"""What a search policy is: the answer to one question, where does the next attempt start?"""

from __future__ import annotations

import random
from typing import Protocol

from stark.core.node import Selection
from stark.search.tree import Tree


class Policy(Protocol):
    """Chooses from a tree; keeps nothing between two choices and changes nothing.

    The answer depends on the tree and the random generator alone. The tree knows what is in
    flight (`tree.pending`) and the number that the attempt will get (`tree.next_attempt`).
    """

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The next attempt's start, or None: wait until something in flight has finished."""
        ...


def expand(tree: Tree, id: int) -> Selection:
    """The selection of this node: what works is improved, what fails is repaired."""
    return Selection(parent=id, action="improve" if tree.works(id) else "debug")
