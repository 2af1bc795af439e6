"""Chains of repairs: which failures may still be repaired, and which were."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from stark.core.node import Node
from stark.search.tree import Tree


class _Attempt(Protocol):
    """The part of a node that counting repairs needs."""

    @property
    def id(self) -> int: ...
    @property
    def parent(self) -> int: ...
    @property
    def action(self) -> str: ...
    @property
    def works(self) -> bool: ...


def working_repair(tree: Tree, failed: int) -> Node | None:
    """The first working repair of this failure, directly or through failed repairs; of several the shortest chain's."""
    waiting = deque([failed])
    while waiting:
        for child in tree.children(waiting.popleft()):
            if child.action != "debug":
                continue
            if child.works:
                return child
            waiting.append(child.id)
    return None


def failures_repaired(attempts: Iterable[_Attempt]) -> tuple[int, int]:
    """How many failures have a repair, and how many of them a working one at the end of a chain of repairs.

    A failed repair is part of the chain of the original failure and not counted again. Parents come before children.
    """
    original: dict[int, int] = {}
    taken, repaired = set(), set()
    for attempt in attempts:
        failure = original.get(attempt.parent) if attempt.action == "debug" else None
        if failure is not None:
            taken.add(failure)
            if attempt.works:
                repaired.add(failure)
        if not attempt.works:
            original[attempt.id] = failure or attempt.id
    return len(taken), len(repaired)


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
