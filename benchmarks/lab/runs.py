"""One simulated run: the product's tree, leaderboard and policy, with a world in place of the team and the judge.

As in the product's loop, up to `parallel` attempts are in flight, and each is added to the tree as it finishes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from lab.landscape import EAGER_MS, Place, World
from stark.core.candidate import Candidate
from stark.core.node import ROOT, Node, Selection
from stark.core.standing import vs_eager
from stark.search.policies.base import Policy
from stark.search.tree import Tree

REPAIR_DURATION = 0.6
"""Relative to an improvement, which asks two roles (plan and code) where a repair asks one."""

_CANDIDATE = Candidate(language="triton", source="class ModelNew: ...\n")


@dataclass(frozen=True)
class Played:
    """The course of a run, in the order in which its attempts finished."""

    gains: tuple[float, ...]
    """After each attempt, the true gain of the run's result: the fastest kernel, or the reference (0) if
    no kernel is measurably faster."""

    first_correct: int | None
    """The position of the first correct attempt, from 1; None if there was none."""

    @property
    def attempts_to_most(self) -> int:
        """The number of attempts after which the gain stayed at 90 % of the final one or more."""
        enough = 0.9 * self.gains[-1]
        missing = [done for done, gain in enumerate(self.gains, start=1) if gain < enough]
        return missing[-1] + 1 if missing else 1


def play(world: World, policy: Policy, attempts: int, parallel: int, seed: int) -> Played:
    """Run this policy in this world. Raises RuntimeError if the policy waits with nothing in flight."""
    gains: list[float] = []
    gain, first_correct = 0.0, None
    for tree, places in _grow(world, policy, attempts, parallel, seed):
        if tree.nodes[-1].works:
            gain = _gain_of_result(tree, places)
            first_correct = first_correct or len(gains) + 1
        gains.append(gain)
    return Played(tuple(gains), first_correct)


def grown(world: World, policy: Policy, attempts: int, parallel: int, seed: int) -> Tree:
    """The final tree of such a run."""
    *_, (tree, _) = _grow(world, policy, attempts, parallel, seed)
    return tree


def _grow(
    world: World, policy: Policy, attempts: int, parallel: int, seed: int
) -> Iterator[tuple[Tree, dict[int, Place]]]:
    """Yields the tree and the place of each of its ids after each finished attempt."""
    rng = random.Random(seed)
    tree = Tree(EAGER_MS)
    places = {ROOT: world.root}
    in_flight: list[tuple[float, int]] = []
    now = 0.0
    for finished in range(attempts):
        while len(in_flight) < min(parallel, attempts - finished):
            selection = policy.select(tree, rng)
            if selection is None:
                break
            attempt = tree.next_attempt
            place = _next(tree, places, selection.parent)
            places[attempt] = place
            tree.begin(attempt, selection)
            heappush(in_flight, (now + _duration(selection, place), attempt))
        if not in_flight:
            raise RuntimeError(f"{policy.name} waits with nothing in flight")
        now, attempt = heappop(in_flight)
        tree.add(_node(attempt, tree.pending[attempt], places[attempt]))
        yield tree, places


def _next(tree: Tree, places: dict[int, Place], parent: int) -> Place:
    """The place of the next attempt from `parent`; attempts in flight come before it."""
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


def _gain_of_result(tree: Tree, places: dict[int, Place]) -> float:
    best = tree.best
    speedup = vs_eager(best.evaluation) if best is not None else None
    return places[best.id].gain if best and speedup and speedup.low > 1.0 else 0.0
