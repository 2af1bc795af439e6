"""Which failures may still be repaired, and which a chain of repairs made work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from stark.search.tree import Tree


class Attempt(Protocol):
    """As much of a node as this needs."""

    @property
    def id(self) -> int:
        """Its number in the run."""

    @property
    def parent(self) -> int:
        """Where it started."""

    @property
    def action(self) -> str:
        """What it set out to do there."""

    @property
    def works(self) -> bool:
        """Whether it came out correct."""


AnyAttempt = TypeVar("AnyAttempt", bound=Attempt)


def mend(failed: int, children: Callable[[int], Iterable[AnyAttempt]]) -> AnyAttempt | None:
    """The repair with which a chain of repairs of this failure came to work, if one did.

    Of several that of the shortest chain, and then the first. A repair that failed may be repaired in its turn.
    """
    waiting = deque([failed])
    while waiting:
        for child in children(waiting.popleft()):
            if child.action != "debug":
                continue
            if child.works:
                return child
            waiting.append(child.id)
    return None


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
