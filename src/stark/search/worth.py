"""What each place is worth to a policy that weighs them against each other: a share from 0 to 1.

Speedups differ by a few percent on one problem and by a factor of ten on another, so it is the rank
that counts: of all that works, the root included, the fastest is worth 1 and the slowest 1/count.
A failing attempt is worth a share of what it set out from, since a repair may make good on its plan;
that share shrinks with every failed repair. An unusable one is worth nothing.

Knows no policy.
"""

from __future__ import annotations

from stark.search.tree import Tree

FAILING_SHARE = 0.5
"""What a failure keeps of its parent's worth: a repair may fail too, or uncover something slower."""


def worths(tree: Tree) -> dict[int, float]:
    """The worth of the root and of every finished attempt, by id."""
    ranking = list(tree.fastest_first())
    worth = {id: 1.0 - rank / len(ranking) for rank, id in enumerate(ranking)}
    for node in tree.nodes:
        if node.id not in worth:
            usable = node.candidate is not None
            worth[node.id] = FAILING_SHARE * worth[node.parent] if usable else 0.0
    return worth


def at_rest(tree: Tree) -> list[int]:
    """The finished attempts that have a source and nothing in flight, in the order in which they finished.

    A second attempt from the same state at the same time would see the same context and repeat the first.
    """
    return [
        node.id
        for node in tree.nodes
        if node.candidate is not None and not tree.pending_children(node.id)
    ]
