from __future__ import annotations

import random

from stark.core.node import ROOT, Selection
from stark.search.policies.always_root import AlwaysRoot
from stark.search.tree import Tree
from support.nodes import unusable, working


def test_every_attempt_starts_from_the_reference_however_many_there_are() -> None:
    tree = Tree.replay(1.0, [working(1, latency_ms=0.1), *(unusable(id) for id in range(2, 20))])
    root = Selection(parent=ROOT, action="improve")
    for attempt in range(20, 30):
        assert root == AlwaysRoot().select(tree, random.Random(attempt))
        tree.begin(attempt, root)
