"""The fastest correct kernels of a run; the paper's leaderboard keeps r = 2, as published summaries describe it."""

from __future__ import annotations

from itertools import islice

from stark.core.node import ROOT, Node
from stark.search.tree import Tree


def leaderboard(tree: Tree, size: int = 2) -> tuple[Node, ...]:
    """The `size` fastest correct nodes, fastest first (see `Tree.fastest_first`); fewer if there are fewer."""
    correct = (tree.node(id) for id in tree.fastest_first() if id != ROOT)
    return tuple(islice(correct, size))
