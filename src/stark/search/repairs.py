"""Which failures may still be repaired: the bookkeeping that policies with bounded repairs share."""

from __future__ import annotations

from stark.search.tree import Tree


def newest_repairable(tree: Tree, repairs: int) -> int | None:
    """The newest broken leaf on which fewer than `repairs` repairs in a row have failed, if there is one."""
    return next((id for id in reversed(tree.leaves) if 0 < failures(tree, id) <= repairs), None)


def failures(tree: Tree, id: int) -> int:
    """How many attempts in a row have failed up to this leaf; 0 if it works.

    Each is a repair of the one before but the first. Unusable replies count too: they leave the
    broken leaf a leaf, and hang below it.
    """
    if tree.works(id):
        return 0
    count = 1 + len(tree.children(id))
    above = tree.node(id).parent
    while not tree.works(above):
        count += 1
        above = tree.node(above).parent
    return count
