"""Chains of repairs: which failures may still be repaired, and which were."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from stark.search.tree import Tree


class Attempt(Protocol):
    """The part of a node that counting repairs needs."""

    @property
    def id(self) -> int:
        """The attempt's number in its run."""

    @property
    def parent(self) -> int:
        """The attempt that it started from."""

    @property
    def action(self) -> str:
        """`improve` or `debug`."""

    @property
    def works(self) -> bool:
        """Whether the candidate is correct."""


AnyAttempt = TypeVar("AnyAttempt", bound=Attempt)


def working_repair(
    failed: int, children: Callable[[int], Iterable[AnyAttempt]]
) -> AnyAttempt | None:
    """The first working repair of this failure, directly or through failed repairs; of several the shortest chain's."""
    waiting = deque([failed])
    while waiting:
        for child in children(waiting.popleft()):
            if child.action != "debug":
                continue
            if child.works:
                return child
            waiting.append(child.id)
    return None


def failures_repaired(attempts: Iterable[Attempt]) -> tuple[int, int]:
    """How many failures have a repair, and how many of them a working one at the end of a chain of repairs.

    A failed repair is part of the chain of the original failure and not counted again.
    """
    children: defaultdict[int, list[Attempt]] = defaultdict(list)
    originals = []
    for attempt in attempts:
        children[attempt.parent].append(attempt)
        if not attempt.works and attempt.action != "debug":
            originals.append(attempt.id)
    taken = [id for id in originals if any(child.action == "debug" for child in children[id])]
    return len(taken), sum(working_repair(id, children.__getitem__) is not None for id in taken)


def newest_repairable(tree: Tree, repairs: int) -> int | None:
    """The newest failed leaf after fewer than `repairs` failed repairs in a row, if there is one."""
    return next((id for id in reversed(tree.leaves) if 0 < failures(tree, id) <= repairs), None)


def failures(tree: Tree, id: int) -> int:
    """The number of failures in a row that end at this leaf: the original one and its failed repairs; 0 if it works.

    Unusable replies count too. They are children of the leaf but leave it a leaf.
    """
    if tree.works(id):
        return 0
    count = 1 + len(tree.children(id))
    above = tree.node(id).parent
    while not tree.works(above):
        count += 1
        above = tree.node(above).parent
    return count
