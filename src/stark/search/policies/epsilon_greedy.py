"""STARK's search: mostly from the fastest node, sometimes from a random leaf (arXiv 2510.16996).

With probability 1 - epsilon it **exploits**: the fastest expandable node that works, the root
among them. With probability epsilon it **explores**: any expandable leaf, each as likely, failing
ones included, whether or not something works already. When one of the two has nothing to offer,
the other decides.

What is expandable:

- The root, while fewer than `n_root` children came from it. Those in flight and unusable ones
  count. The root is exempt from the two rules below: it is throttled, never dead, and several
  attempts may start from it at once, since an empty tree has nothing else to offer.
- Any other node that has a source, no child in flight (a second attempt from the same state would
  see the same context and repeat the first) and is not dead.
- A node is **dead** when at least `n_child` children of it finished and all have failed, unusable
  ones included. Only the node itself: its failed children stay leaves that may be repaired, and
  what a repair made of them stays open to improvement.

When nothing is expandable and nothing is in flight, the root is opened again beyond `n_root`: a
fresh start beats stopping with budget left.
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
    """The adapted epsilon-greedy policy; the defaults are the paper's."""

    name: ClassVar[str] = "epsilon-greedy"

    epsilon: float = 0.3
    n_root: int = 5
    n_child: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise UsageError(f"epsilon is a probability, so give 0 to 1, not {self.epsilon}.")
        if self.n_root < 1 or self.n_child < 1:
            raise UsageError("Give n_root and n_child of at least 1.")

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The next attempt's start, or None while all that could be expanded is in flight."""
        fastest, leaves = self._fastest(tree), self._leaves(tree)
        explores = rng.random() < self.epsilon
        if leaves and (explores or fastest is None):
            return expand(tree, rng.choice(leaves))
        if fastest is not None:
            return expand(tree, fastest)
        return None if tree.pending else expand(tree, ROOT)

    def _fastest(self, tree: Tree) -> int | None:
        """What exploiting takes."""
        return next((id for id in tree.fastest_first() if self._expandable(tree, id)), None)

    def _leaves(self, tree: Tree) -> list[int]:
        """What exploring draws from."""
        return [id for id in tree.leaves if self._expandable(tree, id)]

    def _expandable(self, tree: Tree, id: int) -> bool:
        if id == ROOT:
            return len(tree.children(ROOT)) + tree.pending_children(ROOT) < self.n_root
        return tree.has_source(id) and not tree.pending_children(id) and not self._is_dead(tree, id)

    def _is_dead(self, tree: Tree, id: int) -> bool:
        children = tree.children(id)
        return len(children) >= self.n_child and not any(child.works for child in children)
