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
    """The working candidate that ends the shortest chain of repairs of this failure; None if no chain ends in one."""
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
    """How many failures were sent to repair, and how many of these were repaired in the end.

    A failed repair belongs to the chain of its original failure and is not counted as another failure. In `attempts`,
    parents must come before their children.
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
    """The newest failed leaf whose original failure has had fewer than `repairs` failed repairs in a row, or None."""
    return next((id for id in reversed(tree.leaves) if 0 < failures(tree, id) <= repairs), None)


def failures(tree: Tree, id: int) -> int:
    """The number of failures in a row that end at this leaf: the original one and its failed repairs.

    The number is 0 if the leaf is correct. A leaf may have children, but only unusable replies; each of them counts as
    a failed repair.
    """
    if tree.works(id):
        return 0
    count = 1 + len(tree.children(id))
    above = tree.node(id).parent
    while not tree.works(above):
        count += 1
        above = tree.node(above).parent
    return count
