"""STARK's search, but that a failure is repaired before anything else is tried.

The paper leaves repairs to exploration: with epsilon 0.3 spread over all leaves, a promising branch
that broke may wait for many attempts. Here the newest broken leaf is repaired at once, until it works
or `repairs` attempts in a row have failed; all else is the adapted epsilon-greedy's. Bounded
repairs at once are an old habit of code agents; the bound in AIDE (arXiv 2502.13138) is 3.

A branch that was given up stays a leaf that exploring may still draw.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import ClassVar

from stark.core.errors import UsageError
from stark.core.node import Selection
from stark.search.policies.base import expand
from stark.search.policies.epsilon_greedy import EpsilonGreedy
from stark.search.repairs import newest_repairable
from stark.search.tree import Tree


@dataclass(frozen=True)
class DebugAtOnce:
    """Repairs first, then another epsilon-greedy choice."""

    name: ClassVar[str] = "debug-at-once"

    repairs: int = 3
    """Attempts to repair one failure, one below the other, before the search goes on elsewhere."""

    otherwise: EpsilonGreedy = field(default_factory=EpsilonGreedy)

    def __post_init__(self) -> None:
        if self.repairs < 1:
            raise UsageError("Give debug-at-once at least one repair.")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The newest failure that may still be repaired, or what epsilon-greedy selects."""
        broken = newest_repairable(tree, self.repairs)
        return self.otherwise.select(tree, rng) if broken is None else expand(tree, broken)
