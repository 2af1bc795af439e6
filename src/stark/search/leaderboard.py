"""The fastest correct kernels of a run.

Ranked by the paired speedup against eager, not by latency: latencies of different attempts were
measured in different windows, between which the machine may have drifted. Each speedup compares
samples taken next to each other, so the drift cancels. Of its interval the lower end counts, so
that a noisy measurement does not win by luck. Ties go to the older attempt.
"""

from __future__ import annotations

from itertools import islice

from stark.core.node import ROOT, Node
from stark.search.tree import Tree


def leaderboard(tree: Tree, size: int = 2) -> tuple[Node, ...]:
    """The `size` fastest correct nodes, fastest first; fewer while there are fewer."""
    correct = (tree.node(id) for id in tree.fastest_first() if id != ROOT)
    return tuple(islice(correct, size))
