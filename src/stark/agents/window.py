"""Chooses what a role sees of the tree: the selected node and at most five others.

| role | sees, besides the node |
|---|---|
| plan, solo | its children, the leaderboard, and every other idea of the run |
| code | its children and its cousins: the working children of its siblings |
| debug | its siblings, each with a working repair if there is one |

An idea takes one line and does not count towards the five. If more than five others qualify, a random
subsample of them is shown; plan and solo always see the leaderboard. Plan and solo do not see attempts that produced
neither a plan nor a candidate; code and debug see only attempts with a candidate.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from stark.core.base import Frozen
from stark.core.node import ROOT, Node
from stark.core.standing import rank
from stark.search.repairs import working_repair
from stark.search.tree import Tree

LIMIT = 5
"""The most nodes that a role sees besides the selected one and the ideas."""

IDEAS = 40
"""The most ideas that a role sees; the latest count."""

RoleName = Literal["plan", "code", "debug", "solo"]


class Repair(Frozen):
    """A failed sibling, and the working candidate that ends a chain of the sibling's repairs."""

    broken: Node
    fixed: Node


class ContextWindow(Frozen):
    """The nodes that a role sees, grouped by their relation to the selected node.

    A node is in one group only. The nodes of a group are in the order in which they finished; only the leaderboard is
    ordered by speed, fastest first.
    """

    node: Node | None = None
    """The selected node; None for the root, which is the reference itself."""

    ideas: tuple[Node, ...] = ()
    """All other attempts that had a plan or led to the node. Those that were sent to repair are left out for their
    repairs, which have the same plan."""

    children: tuple[Node, ...] = ()
    cousins: tuple[Node, ...] = ()
    """Working children of the node's siblings."""

    siblings: tuple[Node, ...] = ()
    """Siblings that are not in `repairs`."""

    repairs: tuple[Repair, ...] = ()
    leaderboard: tuple[Node, ...] = ()
    """The run's fastest attempts, excluding the selected node and its children."""

    leading: tuple[int, ...] = ()
    """The ids of children and cousins that are among the run's fastest attempts. `leaderboard` does not repeat them."""

    @property
    def others(self) -> tuple[Node, ...]:
        """All nodes besides the selected one and the ideas."""
        repairs = tuple(node for repair in self.repairs for node in (repair.broken, repair.fixed))
        return self.children + self.cousins + self.siblings + repairs + self.leaderboard

    @property
    def leaders(self) -> tuple[Node, ...]:
        """The run's fastest attempts among those shown, fastest first."""
        relatives = tuple(node for node in self.children + self.cousins if node.id in self.leading)
        shown = self.leaderboard + relatives
        return tuple(sorted(shown, key=rank))

    @property
    def repaired_by(self) -> dict[int, int]:
        """Maps each working repair to the failure that it fixed: the repair's parent, or a failure further up."""
        return {repair.fixed.id: repair.broken.id for repair in self.repairs}


def window(tree: Tree, node_id: int, role: RoleName, rng: random.Random) -> ContextWindow:
    """What this role sees when this node is selected: a pure function of its arguments."""
    match role:
        case "plan" | "solo":
            return _for_planning(tree, node_id, rng)
        case "code":
            return _for_coding(tree, node_id, rng)
        case "debug":
            return _for_debugging(tree, node_id, rng)


def lone_window(tree: Tree, node_id: int) -> ContextWindow:
    """The selected node alone, for the baselines without memory."""
    return ContextWindow(node=_selected(tree, node_id))


def _for_planning(tree: Tree, node_id: int, rng: random.Random) -> ContextWindow:
    leaders = [node for node in tree.leaderboard() if node.id != node_id]
    children = [child for child in tree.children(node_id) if child.plan or child.candidate]
    always = {leader.id for leader in leaders}
    rest = [child for child in children if child.id not in always]
    shown = always | _drawn(rest, LIMIT - len(always), rng)
    path = {node.id for node in tree.path(node_id)}
    ideas = (
        node
        for node in tree.nodes
        if (node.plan or node.id in path)
        and node.id not in shown | {node_id}
        and not any(child.action == "debug" for child in tree.children(node.id))
    )
    return ContextWindow(
        node=_selected(tree, node_id),
        ideas=tuple(ideas)[-IDEAS:],
        children=tuple(child for child in children if child.id in shown),
        leaderboard=tuple(leader for leader in leaders if leader.parent != node_id),
        leading=tuple(leader.id for leader in leaders if leader.parent == node_id),
    )


def _for_coding(tree: Tree, node_id: int, rng: random.Random) -> ContextWindow:
    """Children, whether they work or fail, since they began from the same source; and cousins, which all work."""
    children = [child for child in tree.children(node_id) if child.candidate]
    siblings = {sibling.id for sibling in tree.siblings(node_id)}
    cousins = [node for node in tree.nodes if node.parent in siblings and node.works]
    shown = _drawn(children + cousins, LIMIT, rng)
    return ContextWindow(
        node=_selected(tree, node_id),
        children=tuple(child for child in children if child.id in shown),
        cousins=tuple(cousin for cousin in cousins if cousin.id in shown),
        leading=tuple(leader.id for leader in tree.leaderboard() if leader.id in shown),
    )


def _for_debugging(tree: Tree, node_id: int, rng: random.Random) -> ContextWindow:
    """Random siblings. A failed sibling and its repair take two places of `LIMIT`; both are shown, or neither is."""
    siblings = [sibling for sibling in tree.siblings(node_id) if sibling.candidate]
    room, shown = LIMIT, []
    fixes = {broken.id: working_repair(tree, broken.id) for broken in siblings if not broken.works}
    for sibling in rng.sample(siblings, len(siblings)):
        cost = 2 if fixes.get(sibling.id) else 1
        if cost <= room:
            room -= cost
            shown.append(sibling.id)
    siblings = [sibling for sibling in siblings if sibling.id in shown]
    return ContextWindow(
        node=_selected(tree, node_id),
        siblings=tuple(sibling for sibling in siblings if not fixes.get(sibling.id)),
        repairs=tuple(
            Repair(broken=sibling, fixed=fixed)
            for sibling in siblings
            if (fixed := fixes.get(sibling.id))
        ),
    )


def _selected(tree: Tree, node_id: int) -> Node | None:
    return None if node_id == ROOT else tree.node(node_id)


def _drawn(nodes: Sequence[Node], size: int, rng: random.Random) -> set[int]:
    """The ids of `size` random nodes, or of all nodes if there are no more than that."""
    return {node.id for node in rng.sample(nodes, min(size, len(nodes)))}
