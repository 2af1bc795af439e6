"""The tree of attempts: who started from whom, what works, and what is in flight.

The root (id 0) is the reference itself. Every finished attempt is a node; an attempt in flight is
a pending child of the node it started from, until its node is added or it is abandoned. A tree is
nothing but its nodes in the order in which they finished, so replaying stored nodes rebuilds it.

Knows no policy (what may be expanded is a policy's own rule), no model and no store. Not meant for
more than one thread.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from stark.core.node import ROOT, Node, Selection


@dataclass(slots=True)
class _Branch:
    """What hangs below one place of the tree."""

    node: Node | None
    """None at the root, which is no attempt."""

    assured_speedup: float | None
    children: list[Node] = field(default_factory=list)
    pending: int = 0

    @property
    def has_source(self) -> bool:
        return self.node is None or self.node.candidate is not None


class Tree:
    """All finished attempts of a run, and those in flight.

    Every method that takes an id raises KeyError for one that is neither the root nor finished.
    """

    def __init__(self, root_latency_ms: float) -> None:
        self._root_latency_ms = root_latency_ms
        self._branches: dict[int, _Branch] = {ROOT: _Branch(node=None, assured_speedup=1.0)}
        self._nodes: list[Node] = []
        self._pending: dict[int, Selection] = {}
        self._last_attempt = 0
        self._leaves: set[int] = {ROOT}
        self._ranking: list[tuple[float, int]] = [(-1.0, ROOT)]
        """(minus the assured speedup, id) of all that works, fastest first."""

    @classmethod
    def replay(cls, root_latency_ms: float, nodes: Iterable[Node]) -> Tree:
        """The tree that these nodes, in the order in which they finished, make."""
        tree = cls(root_latency_ms)
        for node in nodes:
            tree.add(node)
        return tree

    # What changes it.

    def begin(self, attempt: int, selection: Selection) -> None:
        """Mark an attempt as in flight. Raises ValueError if it cannot start there."""
        self._check_new(attempt)
        if attempt in self._pending:
            raise ValueError(f"attempt {attempt} is already in flight")
        if attempt <= selection.parent:
            raise ValueError(f"attempt {attempt} cannot start from the later {selection.parent}")
        self._check_parent(selection.parent)
        self._pending[attempt] = selection
        self._last_attempt = max(self._last_attempt, attempt)
        self._branches[selection.parent].pending += 1
        self._refresh_leaf(selection.parent)

    def abandon(self, attempt: int) -> None:
        """Forget an attempt in flight that will never finish; its number is not given again."""
        selection = self._pending.pop(attempt)
        self._branches[selection.parent].pending -= 1
        self._refresh_leaf(selection.parent)

    def add(self, node: Node) -> None:
        """Take in a finished attempt. Raises ValueError if it contradicts what is known of it."""
        self._check_new(node.id)
        self._check_parent(node.parent)
        begun = self._pending.get(node.id)
        if begun is not None and (begun.parent, begun.action) != (node.parent, node.action):
            raise ValueError(f"attempt {node.id} finished as another than it began: {begun}")
        speedup = node.assured_speedup

        if begun is not None:
            self.abandon(node.id)
        self._branches[node.id] = _Branch(node, speedup)
        self._branches[node.parent].children.append(node)
        self._nodes.append(node)
        self._last_attempt = max(self._last_attempt, node.id)
        self._refresh_leaf(node.id)
        self._refresh_leaf(node.parent)
        if speedup is not None:
            insort(self._ranking, (-speedup, node.id))

    # The whole tree.

    @property
    def root_latency_ms(self) -> float:
        """The measured time of the reference."""
        return self._root_latency_ms

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All finished attempts in the order in which they finished."""
        return tuple(self._nodes)

    @property
    def pending(self) -> Mapping[int, Selection]:
        """The attempts in flight, by number, in the order in which they began; read only."""
        return MappingProxyType(self._pending)

    @property
    def next_attempt(self) -> int:
        """The number of the next attempt: one more than any that began or finished here."""
        return self._last_attempt + 1

    @property
    def leaves(self) -> tuple[int, ...]:
        """The ids of all leaves (see `is_leaf`), the root possibly among them, ascending."""
        return tuple(sorted(self._leaves))

    @property
    def best(self) -> Node | None:
        """The fastest correct node; None while there is none. It may be slower than the root."""
        return next((self.node(id) for id in self.fastest_first() if id != ROOT), None)

    def fastest_first(self) -> Iterator[int]:
        """The ids of all that works, the root included, fastest first and the older first on ties.

        Ranked by the paired speedup against eager, by which the root has exactly 1: latencies of
        two attempts come from two windows, and the machine may have drifted in between. Of the
        speedup's interval the lower end counts (`Node.assured_speedup`).
        """
        return (id for _, id in self._ranking)

    # One place in it.

    def __contains__(self, id: int) -> bool:
        """Whether the id is the root's or a finished attempt's."""
        return id in self._branches

    def node(self, id: int) -> Node:
        """A finished attempt. Raises KeyError for the root, which is none."""
        node = self._branches[id].node
        if node is None:
            raise KeyError(id)
        return node

    def children(self, id: int) -> tuple[Node, ...]:
        """The finished attempts that started from here, in the order in which they finished."""
        return tuple(self._branches[id].children)

    def siblings(self, id: int) -> tuple[Node, ...]:
        """The other finished children of the same parent; the root has none."""
        if id == ROOT:
            return ()
        return tuple(child for child in self.children(self.node(id).parent) if child.id != id)

    def pending_children(self, id: int) -> int:
        """How many attempts in flight started from here."""
        return self._branches[id].pending

    def path(self, id: int) -> tuple[Node, ...]:
        """The attempts that led here, from the root's child down to this node; empty at the root."""
        upwards = []
        while id != ROOT:
            node = self.node(id)
            upwards.append(node)
            id = node.parent
        return tuple(reversed(upwards))

    def works(self, id: int) -> bool:
        """Whether it computes the right function; the reference does."""
        node = self._branches[id].node
        return node is None or node.works

    def has_source(self, id: int) -> bool:
        """Whether there is a program to start from; an unusable reply left none."""
        return self._branches[id].has_source

    def assured_speedup(self, id: int) -> float | None:
        """`Node.assured_speedup`, computed once; 1 for the root and None for a node that failed."""
        return self._branches[id].assured_speedup

    def is_leaf(self, id: int) -> bool:
        """Whether it has a source and nothing grew from it, nor is growing.

        An unusable reply did not grow into anything, so it leaves its parent a leaf: otherwise
        one bad reply to a repair would put the broken node out of reach for good.
        """
        branch = self._branches[id]
        grew = any(child.candidate is not None for child in branch.children)
        return branch.has_source and not branch.pending and not grew

    # What keeps it whole.

    def _refresh_leaf(self, id: int) -> None:
        if self.is_leaf(id):
            self._leaves.add(id)
        else:
            self._leaves.discard(id)

    def _check_new(self, attempt: int) -> None:
        if attempt in self._branches:
            raise ValueError(f"attempt {attempt} is already in the tree")

    def _check_parent(self, parent: int) -> None:
        if parent not in self._branches:
            raise ValueError(f"no finished attempt {parent} to start from")
        if not self.has_source(parent):
            raise ValueError(f"attempt {parent} was unusable and has no source to start from")
