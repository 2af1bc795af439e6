"""The paper's search, an adapted epsilon-greedy (arXiv 2510.16996), as published summaries describe it.

- **Exploit** with probability 1 - epsilon: the fastest expandable correct node by measured speedup, with
  the root counted as exactly 1x; too-noisy nodes rank last (`Tree.fastest_first`).
- **Explore** with probability epsilon: any expandable leaf, chosen uniformly, including failed leaves,
  even if a correct node exists.
- **Root throttling**: the root is not expandable once it has `n_root` children, including unusable
  replies and attempts in flight.
- **Dead branches**: a node is dead, so not expandable, once at least `n_child` of its children have
  finished and every finished child has failed. Unusable replies count as failed children. Only the node
  itself is dead: its failing children can still be debugged, and their repairs improved.

Where the summaries say nothing, these rules are ours:

- An unusable reply has no source, so it is never expandable.
- A node with a child in flight is not expandable: a second attempt from the same state would get the same
  context and repeat the first. The root is exempt: at the start nothing else can be expanded, so
  parallel attempts must all begin there, and `n_root` limits them.
- The root is never dead; throttling already limits it.
- If there is no node to exploit, the policy explores, and vice versa.
- If nothing is expandable and nothing is in flight, the root is expanded beyond `n_root`: a fresh start is
  better than stopping with budget left.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from stark.core.errors import UsageError
from stark.core.node import ROOT, Selection
from stark.search.policies.base import expand
from stark.search.tree import Tree


@dataclass(frozen=True)
class EpsilonGreedy:
    """The adapted epsilon-greedy policy. The defaults are the paper's, as published summaries describe them."""

    name: ClassVar[str] = "epsilon-greedy"

    epsilon: float = 0.3
    n_root: int = 5
    n_child: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise UsageError(f"epsilon is a probability from 0 to 1, not {self.epsilon}")
        if self.n_root < 1 or self.n_child < 1:
            raise UsageError("n_root and n_child must be at least 1")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The next attempt's start, or None if nothing is expandable while attempts are in flight."""
        fastest = next((id for id in tree.fastest_first() if self._expandable(tree, id)), None)
        leaves = [id for id in tree.leaves if self._expandable(tree, id)]
        explores = rng.random() < self.epsilon
        if leaves and (explores or fastest is None):
            return expand(tree, rng.choice(leaves))
        if fastest is not None:
            return expand(tree, fastest)
        return None if tree.pending else expand(tree, ROOT)

    def _expandable(self, tree: Tree, id: int) -> bool:
        if id == ROOT:
            return tree.drafts_before(tree.next_attempt) < self.n_root
        return tree.is_start(id) and not tree.pending_children(id) and not self._is_dead(tree, id)

    def _is_dead(self, tree: Tree, id: int) -> bool:
        children = tree.tries(id)
        return len(children) >= self.n_child and not any(child.works for child in children)
