"""The paper's search, except that failures are repaired immediately.

The paper leaves repairs to exploration: with epsilon 0.3 spread over all leaves, a promising branch that
fails may wait for many attempts. Here the newest failing leaf is repaired until it works or `repairs`
attempts in a row have failed; after that, exploration may still select it. AIDE (arXiv 2502.13138) bounds
its repairs at 3 too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.errors import UsageError
from stark.core.node import Selection
from stark.search.policies.base import expand
from stark.search.policies.epsilon_greedy import EpsilonGreedy
from stark.search.repairs import newest_repairable
from stark.search.tree import Tree


@dataclass(frozen=True)
class DebugAtOnce(EpsilonGreedy):
    """Repairs first, then epsilon-greedy."""

    name: ClassVar[str] = "debug-at-once"

    repairs: int = 3
    """Repairs in a row of one failure, each of the one before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.repairs < 1:
            raise UsageError("repairs must be at least 1")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The newest failure that may still be repaired, or what epsilon-greedy selects."""
        failing = newest_repairable(tree, self.repairs)
        return super().select(tree, rng) if failing is None else expand(tree, failing)
