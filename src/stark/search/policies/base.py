"""The interface of a search policy: given the tree of attempts, where does the next one start?"""

from __future__ import annotations

import random
from dataclasses import Field
from typing import Any, ClassVar, Protocol

from stark.core.node import COMPILER, ROOT, Selection
from stark.search.tree import Tree


class Policy(Protocol):
    """Chooses from a tree.

    The choice depends on the tree and the random generator alone: a policy keeps no state between
    calls and does not change the tree. The tree knows what is in flight (`tree.pending`) and the
    number that the attempt will get (`tree.next_attempt`).
    """

    @property
    def name(self) -> str:
        """Its name in the registry and in messages."""
        ...

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The node that the next attempt starts from; None: wait until an attempt in flight has finished."""
        ...


class RegisteredPolicy(Policy, Protocol):
    """A policy that users choose by name: a frozen dataclass whose fields are its numeric parameters, all with defaults."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def expand(tree: Tree, id: int) -> Selection:
    """Improve this node if it is correct, debug it otherwise."""
    return Selection(parent=id, action="improve" if tree.works(id) else "debug")


def drafts_from_root(tree: Tree) -> int:
    """How many attempts of the team started from the root, finished or in flight.

    The compiler's start (`--start compiler`) is a child of the root too, but not the team's, so it does not
    count. The tree knows that only once it has finished; until then it counts.
    """
    finished = sum(child.role != COMPILER for child in tree.children(ROOT))
    return finished + tree.pending_children(ROOT)
