"""The tree of attempts: parents and children, which nodes are correct, and what is in flight.

The root (id 0) is the reference. Every finished attempt is a node. An attempt in flight (begun but not finished) is a
pending child of its parent until its node is added. The finished nodes, in the order in which they finished, determine
the tree, so replaying stored nodes rebuilds it.

The policy decides which nodes may be expanded. The tree is not thread-safe.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType

from stark.core.measurement import Speedup
from stark.core.node import ROOT, Node, Selection
from stark.core.standing import rank_key, vs_eager

ROOT_SPEEDUP = Speedup(reference="eager", ratio=1.0, low=1.0, high=1.0)
"""The speedup of the reference against itself: exactly 1."""


class Tree:
    """All finished attempts of a run, and those in flight.

    Methods for a single node take the id of a finished attempt or, except for `node`, of the root. An id that is not in
    the tree raises KeyError, except in `pending_children`, which returns 0.
    """

    def __init__(self, root_latency_ms: float) -> None:
        self.root_latency_ms = root_latency_ms
        """Measured time of the reference in milliseconds."""

        self._nodes: dict[int, Node] = {}
        self._children: dict[int, list[Node]] = {ROOT: []}
        self._pending: dict[int, Selection] = {}
        self._ranking = [rank_key(ROOT_SPEEDUP, ROOT)]
        """The sort keys of the root and all correct nodes, fastest first."""

    @classmethod
    def replay(cls, root_latency_ms: float, nodes: Iterable[Node]) -> Tree:
        """Rebuild a tree from its nodes in the order in which they finished."""
        tree = cls(root_latency_ms)
        for node in nodes:
            tree.add(node)
        return tree

    # Changes.

    def begin(self, attempt: int, selection: Selection) -> None:
        """Mark an attempt as in flight. Raises ValueError if it cannot start from that parent."""
        self._check(attempt, selection.parent)
        if attempt in self._pending:
            raise ValueError(f"attempt {attempt} is already in flight")
        self._pending[attempt] = selection

    def add(self, node: Node) -> None:
        """Add a finished attempt.

        Raises ValueError if the attempt cannot start from its parent, or differs from the one begun under its number.
        """
        self._check(node.id, node.parent)
        begun = self._pending.get(node.id)
        if begun is not None and (begun.parent, begun.action) != (node.parent, node.action):
            raise ValueError(f"attempt {node.id} finished differently than it began: {begun}")
        self._pending.pop(node.id, None)
        self._nodes[node.id] = node
        self._children[node.id] = []
        self._children[node.parent].append(node)
        speedup = vs_eager(node.evaluation)
        if speedup is not None:
            insort(self._ranking, rank_key(speedup, node.id))

    # The whole tree.

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All finished attempts, in finishing order."""
        return tuple(self._nodes.values())

    @property
    def made(self) -> int:
        """How many finished attempts count towards the budget."""
        return sum(node.counts for node in self.nodes)

    @property
    def pending(self) -> Mapping[int, Selection]:
        """The attempts in flight by number, in starting order; read-only."""
        return MappingProxyType(self._pending)

    @property
    def next_attempt(self) -> int:
        """The next attempt's number: one more than the highest so far."""
        return 1 + max([ROOT, *self._nodes, *self._pending])

    @property
    def leaves(self) -> tuple[int, ...]:
        """The ids of all leaves, in ascending order. The root may be one of them.

        A leaf has source code, but no child with source code and no child in flight. A child without source code (an
        unusable reply) does not count. Otherwise one bad reply to a repair would make the failing node unreachable for
        exploration.
        """
        grown = {node.parent for node in self.nodes if self.is_start(node.id)}
        grown |= {selection.parent for selection in self._pending.values()}
        return tuple(id for id in sorted(self._children) if self.is_start(id) and id not in grown)

    @property
    def best(self) -> Node | None:
        """The fastest correct node, or None. It may be slower than the root."""
        return next(iter(self.leaderboard(1)), None)

    def leaderboard(self, size: int = 2) -> tuple[Node, ...]:
        """The `size` fastest correct nodes, fastest first; fewer if there are fewer.

        An attempt with the same source as an earlier attempt is not listed. The default size is the paper's (r = 2),
        according to published summaries.
        """
        correct = (self.node(id) for id in self.fastest_first() if id != ROOT)
        return tuple(islice((node for node in correct if node.duplicate_of is None), size))

    def fastest_first(self) -> Iterator[int]:
        """The ids of the root and all correct nodes, fastest first (`core.standing.rank_key`).

        Ranked by the measured speedup against eager mode; the root's is exactly 1. Latencies are not comparable,
        because attempts are timed at different times and the machine may drift in between. Nodes whose
        measurements are too noisy to rank by come last, after the root.
        """
        return (id for _, _, id in self._ranking)

    # Single nodes.

    def __contains__(self, id: int) -> bool:
        """Whether the id is the root's or a finished attempt's."""
        return id in self._children

    def node(self, id: int) -> Node:
        """A finished attempt. Raises KeyError for any other id, including the root's."""
        return self._nodes[id]

    def children(self, id: int) -> tuple[Node, ...]:
        """The finished attempts that started from this node, in finishing order."""
        return tuple(self._children[id])

    def tries(self, id: int) -> tuple[Node, ...]:
        """The children that count as attempts, not those that tuning found."""
        return tuple(child for child in self.children(id) if child.counts)

    def siblings(self, id: int) -> tuple[Node, ...]:
        """The other finished children of the same parent; the root has none."""
        if id == ROOT:
            return ()
        return tuple(child for child in self.children(self.node(id).parent) if child.id != id)

    def pending_children(self, id: int) -> int:
        """The number of attempts in flight that started from this node."""
        return sum(selection.parent == id for selection in self._pending.values())

    def drafts_before(self, attempt: int) -> int:
        """The number of attempts, finished or in flight, that started from the root before this one."""
        finished = (child.id for child in self._children[ROOT])
        pending = (id for id, selection in self._pending.items() if selection.parent == ROOT)
        return sum(id < attempt for id in (*finished, *pending))

    def path(self, id: int) -> tuple[Node, ...]:
        """The attempts from the root's child down to this node; empty for the root."""
        upwards = []
        while id != ROOT:
            node = self.node(id)
            upwards.append(node)
            id = node.parent
        return tuple(reversed(upwards))

    def works(self, id: int) -> bool:
        """Whether the node is correct; the root always is."""
        return id == ROOT or self.node(id).works

    def has_source(self, id: int) -> bool:
        """Whether there is source code. An unusable reply has none."""
        return id == ROOT or self.node(id).candidate is not None

    def is_start(self, id: int) -> bool:
        """Whether a policy may start from it. A tuned candidate that fails is no start: the attempt that was tuned is."""
        return self.has_source(id) and (id == ROOT or self.node(id).counts or self.works(id))

    def _check(self, attempt: int, parent: int) -> None:
        if attempt in self._nodes:
            raise ValueError(f"attempt {attempt} is already in the tree")
        if attempt <= parent:
            raise ValueError(
                f"attempt {attempt} cannot start from attempt {parent}: a parent has a lower number"
            )
        if parent not in self:
            raise ValueError(f"attempt {parent} is not finished, so nothing can start from it")
        if not self.has_source(parent):
            raise ValueError(f"attempt {parent} was unusable, so there is no source to start from")
