"""The fastest correct kernels of a run; the paper's leaderboard keeps r = 2, as published summaries describe it."""

from __future__ import annotations

from itertools import islice

from stark.core.node import ROOT, Node
from stark.search.tree import Tree


def leaderboard(tree: Tree, size: int = 2) -> tuple[Node, ...]:
    """The `size` fastest correct nodes, fastest first (see `Tree.fastest_first`); fewer if there are fewer.

    An attempt that repeats an earlier one's source is not listed beside it.
    """
    correct = (tree.node(id) for id in tree.fastest_first() if id != ROOT)
    return tuple(islice((node for node in correct if node.duplicate_of is None), size))
