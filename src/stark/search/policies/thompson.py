"""Thompson sampling over all places, as REx does it for program repair (arXiv 2405.17503).

Every place is an arm whose chance to lead to something better is drawn from a Beta distribution:
Beta(1 + C h, 1 + C (1 - h) + n), with h the place's worth (`search.worth`; REx, whose programs are
all wrong, has the share of tests passed) and n the attempts that it already had, those in flight
included. The highest draw is taken. So good places come first, and each attempt from a place makes
room for another. The root is an arm like any other.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.errors import UsageError
from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.tree import Tree
from stark.search.worth import at_rest, worths


@dataclass(frozen=True)
class Thompson:
    """Draws what each arm may be worth, and believes the draw."""

    name: ClassVar[str] = "thompson"

    trust: float = 10.0
    """C: how much a place's worth says before anything came from it; half of REx's value did better here."""

    def __post_init__(self) -> None:
        if self.trust < 0:
            raise UsageError(f"Give thompson a trust of at least 0, not {self.trust}.")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The arm with the highest draw; never waits, for the root is open."""
        worth = worths(tree)

        def draw(id: int) -> float:
            tried = len(tree.children(id)) + tree.pending_children(id)
            good = self.trust * worth[id]
            return rng.betavariate(1 + good, 1 + self.trust - good + tried)

        return expand(tree, max([ROOT, *at_rest(tree)], key=draw))
