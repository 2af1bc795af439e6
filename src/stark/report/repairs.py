"""What debugging achieved: failed attempts taken up, and those that a chain of repairs made work."""

from __future__ import annotations

from stark.core.node import Node
from stark.search.tree import Tree


def failures_repaired(tree: Tree) -> tuple[int, int]:
    """Of the failed attempts that debug took up: how many there are, and how many ended in one that works."""
    taken = [node for node in tree.nodes if not node.works and _repairs(tree, node)]
    return len(taken), sum(_mended(tree, node) for node in taken)


def _repairs(tree: Tree, node: Node) -> list[Node]:
    return [child for child in tree.children(node.id) if child.action == "debug"]


def _mended(tree: Tree, node: Node) -> bool:
    return any(child.works or _mended(tree, child) for child in _repairs(tree, node))
