"""The interface of a search policy, which chooses the node of the tree that the next attempt starts from."""

from __future__ import annotations

import random
from dataclasses import Field
from typing import Any, ClassVar, Protocol

from stark.core.node import Selection
from stark.search.tree import Tree


class Policy(Protocol):
    """Chooses a node of a tree.

    The choice depends on the tree and the random generator alone: a policy keeps no state between
    calls and does not change the tree. The tree knows which attempts are in flight (`tree.pending`)
    and which number the next attempt will get (`tree.next_attempt`).
    """

    @property
    def name(self) -> str:
        """The policy's name in the registry and in messages."""
        ...

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The node that the next attempt starts from, or None to wait until an attempt in flight has finished."""
        ...


class RegisteredPolicy(Policy, Protocol):
    """A policy that users choose by name: a frozen dataclass whose fields are numeric parameters with defaults."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def expand(tree: Tree, id: int) -> Selection:
    """Improve this node if it is correct, debug it otherwise."""
    return Selection(parent=id, action="improve" if tree.works(id) else "debug")
