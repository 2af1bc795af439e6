"""One simulated run: the loop's own tree and leaderboard and a real policy; a world in place of the team.

As in the loop, up to `parallel` attempts are in flight, and each finish is told to the tree at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from lab.landscape import EAGER_MS, Place, World
from stark.core.candidate import Candidate
from stark.core.node import ROOT, Node, Selection
from stark.search.leaderboard import leaderboard
from stark.search.policies.base import Policy
from stark.search.tree import Tree

REPAIR_DURATION = 0.6
"""Of an improvement's: a repair asks one role and an improvement two, plan and code."""

_CANDIDATE = Candidate(language="triton", source="class ModelNew: ...\n")


@dataclass(frozen=True)
class Played:
    """How a run went, attempt by attempt in the order in which they finished."""

    gains: tuple[float, ...]
    """The true gain of what the user would take away after each: the leaderboard's first, or the
    reference (0) where that is not measured as faster."""

    first_correct: int | None
    """After how many attempts something was correct."""

    @property
    def attempts_to_most(self) -> int:
        """After how many attempts 90 % of the final gain was there for good."""
        enough = 0.9 * self.gains[-1]
        missing = [done for done, gain in enumerate(self.gains, start=1) if gain < enough]
        return missing[-1] + 1 if missing else 1


def play(world: World, policy: Policy, attempts: int, parallel: int, seed: int) -> Played:
    """A run of this policy in this world. Raises RuntimeError for a policy that is stuck."""
    gains: list[float] = []
    gain, first_correct = 0.0, None
    for tree, places in _grow(world, policy, attempts, parallel, seed):
        if tree.nodes[-1].works:
            gain = _taken_away(tree, places)
            first_correct = first_correct or len(gains) + 1
        gains.append(gain)
    return Played(tuple(gains), first_correct)


def grown(world: World, policy: Policy, attempts: int, parallel: int, seed: int) -> Tree:
    """The tree that such a run ends with."""
    *_, (tree, _) = _grow(world, policy, attempts, parallel, seed)
    return tree


def _grow(
    world: World, policy: Policy, attempts: int, parallel: int, seed: int
) -> Iterator[tuple[Tree, dict[int, Place]]]:
    """The tree and what stands at its ids, after each attempt that finished."""
    rng = random.Random(seed)
    tree = Tree(EAGER_MS)
    places = {ROOT: world.root}
    flying: list[tuple[float, int]] = []
    now = 0.0
    for finished in range(attempts):
        while len(flying) < min(parallel, attempts - finished):
            selection = policy.select(tree, rng)
            if selection is None:
                break
            attempt = tree.next_attempt
            place = _next(tree, places, selection.parent)
            places[attempt] = place
            tree.begin(attempt, selection)
            heappush(flying, (now + _duration(selection, place), attempt))
        if not flying:
            raise RuntimeError(f"{policy.name} found nothing to do with nothing in flight")
        now, attempt = heappop(flying)
        tree.add(_node(attempt, tree.pending[attempt], places[attempt]))
        yield tree, places


def _next(tree: Tree, places: dict[int, Place], parent: int) -> Place:
    """What the next attempt from here will be: those in flight have their turn before it."""
    return places[parent].attempt(len(tree.children(parent)) + tree.pending_children(parent))


def _duration(selection: Selection, place: Place) -> float:
    return place.duration * (REPAIR_DURATION if selection.action == "debug" else 1.0)


def _node(attempt: int, selection: Selection, place: Place) -> Node:
    return Node(
        id=attempt,
        parent=selection.parent,
        action=selection.action,
        role="code" if selection.action == "improve" else "debug",
        candidate=None if place.code is None else _CANDIDATE,
        evaluation=place.evaluation,
    )


def _taken_away(tree: Tree, places: dict[int, Place]) -> float:
    for best in leaderboard(tree, 1):
        if (tree.assured_speedup(best.id) or 0.0) > 1.0:
            return places[best.id].gain
    return 0.0
