"""What a role is shown of the tree: the selected node and at most five others, chosen for the role.

| role | sees, besides the node |
|---|---|
| plan | its children (what was tried from here and how it ended), the leaderboard, and its history |
| solo | as plan: one agent alone decides and writes |
| code | its children's code, and that of siblings that work |
| debug | its siblings, each with its repair if one worked |

A node's history is the attempts that led to it, each told in a line, so they count as none of the five.
The leaderboard is always shown; of the rest a random subsample where there are more than fit. An
attempt that left neither plan nor code is shown to no one. Knows no prompt and no policy.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from pydantic import model_validator

from stark.core.base import Frozen
from stark.core.node import ROOT, Node
from stark.search.leaderboard import leaderboard
from stark.search.repairs import working_repair
from stark.search.tree import Tree

LIMIT = 5
"""How many nodes besides the selected one a role is shown at most."""

RoleName = Literal["plan", "code", "debug", "solo"]


class Repair(Frozen):
    """A sibling that failed, and the repair of it, or of a repair of it, that works: how a like fault was mended."""

    broken: Node
    fixed: Node


class ContextWindow(Frozen):
    """The nodes that a role is shown, by their relation to the selected one; none twice.

    Each relation is in the order in which its nodes finished, the leaderboard fastest first.
    """

    node: Node | None = None
    """The selected node; None is the root, the reference itself."""

    history: tuple[Node, ...] = ()
    """The attempts that led to the node, from the root's child down to its parent."""

    children: tuple[Node, ...] = ()
    siblings: tuple[Node, ...] = ()
    """Those that are not part of a repair."""

    repairs: tuple[Repair, ...] = ()
    leaderboard: tuple[Node, ...] = ()
    """Those that are not the selected node nor its children."""

    leading: tuple[int, ...] = ()
    """The ids of the children and siblings that are on the leaderboard too."""

    @property
    def others(self) -> tuple[Node, ...]:
        """All nodes shown besides the selected one and its history."""
        repairs = tuple(node for repair in self.repairs for node in (repair.broken, repair.fixed))
        return self.children + self.siblings + repairs + self.leaderboard

    @property
    def leaders(self) -> tuple[Node, ...]:
        """The fastest attempts of the run among those shown, fastest first."""
        kin = tuple(node for node in self.children + self.siblings if node.id in self.leading)
        return tuple(
            sorted(self.leaderboard + kin, key=lambda n: (-(n.assured_speedup or 0), n.id))
        )

    @property
    def mended(self) -> dict[int, int]:
        """By a repair that works, what it mended: its parent, or a failure further up."""
        return {repair.fixed.id: repair.broken.id for repair in self.repairs}

    @model_validator(mode="after")
    def _few_and_none_twice(self) -> ContextWindow:
        shown = [node.id for node in self.others]
        if len(shown) > LIMIT:
            raise ValueError(f"a window shows at most {LIMIT} other nodes, not {len(shown)}")
        if self.node is not None:
            shown.append(self.node.id)
        if len(set(shown)) < len(shown):
            raise ValueError(f"a window shows no node twice, but has {sorted(shown)}")
        return self


def window(tree: Tree, node_id: int, role: RoleName, rng: random.Random) -> ContextWindow:
    """What this role sees when this node is selected: a pure function of its arguments."""
    match role:
        case "plan" | "solo":
            return _what_was_tried(tree, node_id, rng)
        case "code":
            return _code_to_draw_on(tree, node_id, rng)
        case "debug":
            return _how_others_fared(tree, node_id, rng)


def lone_window(tree: Tree, node_id: int) -> ContextWindow:
    """The selected node and nothing else, for the baselines that are defined by having no memory.

    Independent tries would not be independent, nor would a chain revise only its last link, if
    their agent saw the rest of the tree.
    """
    return ContextWindow(node=_selected(tree, node_id))


def _what_was_tried(tree: Tree, node_id: int, rng: random.Random) -> ContextWindow:
    leaders = [node for node in leaderboard(tree) if node.id != node_id]
    children = [child for child in tree.children(node_id) if child.plan or child.candidate]
    always = {leader.id for leader in leaders}
    rest = [child for child in children if child.id not in always]
    shown = always | _drawn(rest, LIMIT - len(always), rng)
    return ContextWindow(
        node=_selected(tree, node_id),
        history=tree.path(node_id)[:-1],
        children=tuple(child for child in children if child.id in shown),
        leaderboard=tuple(leader for leader in leaders if leader.parent != node_id),
        leading=tuple(leader.id for leader in leaders if leader.parent == node_id),
    )


def _code_to_draw_on(tree: Tree, node_id: int, rng: random.Random) -> ContextWindow:
    """A child's code tells even where it fails, for it did what is asked now; a sibling's must work."""
    children = [child for child in tree.children(node_id) if child.candidate]
    siblings = [sibling for sibling in tree.siblings(node_id) if sibling.works]
    shown = _drawn(children + siblings, LIMIT, rng)
    return ContextWindow(
        node=_selected(tree, node_id),
        children=tuple(child for child in children if child.id in shown),
        siblings=tuple(sibling for sibling in siblings if sibling.id in shown),
        leading=tuple(leader.id for leader in leaderboard(tree) if leader.id in shown),
    )


def _how_others_fared(tree: Tree, node_id: int, rng: random.Random) -> ContextWindow:
    """A repair shows two nodes, so it is taken whole or not at all."""
    siblings = [sibling for sibling in tree.siblings(node_id) if sibling.candidate]
    room, shown = LIMIT, []
    repairs = {sibling.id: _repair(tree, sibling) for sibling in siblings}
    for sibling in rng.sample(siblings, len(siblings)):
        cost = 2 if repairs[sibling.id] else 1
        if cost <= room:
            room -= cost
            shown.append(sibling.id)
    siblings = [sibling for sibling in siblings if sibling.id in shown]
    return ContextWindow(
        node=_selected(tree, node_id),
        siblings=tuple(sibling for sibling in siblings if repairs[sibling.id] is None),
        repairs=tuple(repair for sibling in siblings if (repair := repairs[sibling.id])),
    )


def _repair(tree: Tree, sibling: Node) -> Repair | None:
    """A sibling that failed and what mended it."""
    fixed = None if sibling.works else working_repair(sibling.id, tree.children)
    return None if fixed is None else Repair(broken=sibling, fixed=fixed)


def _selected(tree: Tree, node_id: int) -> Node | None:
    return None if node_id == ROOT else tree.node(node_id)


def _drawn(nodes: Sequence[Node], size: int, rng: random.Random) -> set[int]:
    """The ids of a random subsample; of all nodes where they fit."""
    return {node.id for node in rng.sample(nodes, min(size, len(nodes)))}
