"""The value of each node as a number from 0 to 1, for policies that weigh nodes against each other.

Values follow ranks, since speedups differ by a few percent on one problem and by a factor of ten on another:
of the root and all correct nodes, the fastest has value 1 and the slowest 1/count. A failing node has a share
of its parent's value, since a repair may still realize its plan; each failed repair reduces the share again.
An unusable reply has value 0.
"""

from __future__ import annotations

from stark.search.tree import Tree

FAILING_SHARE = 0.5
"""The share of its parent's value that a failing node has."""


def rank_values(tree: Tree) -> dict[int, float]:
    """The value of the root and of every finished attempt, by id."""
    ranking = list(tree.fastest_first())
    values = {id: 1.0 - rank / len(ranking) for rank, id in enumerate(ranking)}
    for node in tree.nodes:
        if node.id not in values:
            usable = node.candidate is not None
            values[node.id] = FAILING_SHARE * values[node.parent] if usable else 0.0
    return values


def idle_nodes(tree: Tree) -> list[int]:
    """The attempts with source code and nothing in flight, in finishing order.

    A second attempt from the same state at the same time would get the same context and repeat the first.
    """
    return [
        node.id
        for node in tree.nodes
        if node.candidate is not None and not tree.pending_children(node.id)
    ]
