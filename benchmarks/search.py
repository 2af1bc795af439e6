"""Measures how long a selection takes at 1,000 attempts: `python benchmarks/search.py`.

A round is the loop's bookkeeping between two attempts: select, begin, add. Exits 1 if the slowest round of any
registered policy on any tree exceeds the limit.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from statistics import median
from time import thread_time

from stark.core.node import ROOT, Node, Selection
from stark.search.policies import POLICIES
from stark.search.policies.base import Policy
from stark.search.tree import Tree
from support.nodes import EAGER_MS, outcome, random_tree

ATTEMPTS = 1000
ROUNDS = 200
LIMIT_MS = 5.0


def grown_by(policy: Policy) -> Tree:
    """The tree that this policy grows from random outcomes."""
    rng = random.Random(0)
    tree = Tree(EAGER_MS)
    while len(tree.nodes) < ATTEMPTS:
        tree.add(_attempt(tree, policy, rng))
    return tree


def grown_at_random(policy: Policy) -> Tree:
    """A tree of random shape, independent of the policy."""
    return random_tree(ATTEMPTS, random.Random(0))


def of_dead_ends(policy: Policy) -> Tree:
    """The worst case for finding an expandable node: every correct node has three failed children."""
    rng = random.Random(0)
    tree = Tree(EAGER_MS)
    while len(tree.nodes) < ATTEMPTS:
        start = Selection(parent=ROOT, action="improve")
        works = outcome(tree.next_attempt, start, rng, ("correct",))
        tree.add(works)
        for _ in range(3):
            start = Selection(parent=works.id, action="improve")
            tree.add(outcome(tree.next_attempt, start, rng, ("unusable",)))
    return tree


SHAPES: dict[str, Callable[[Policy], Tree]] = {
    "its own": grown_by,
    "random": grown_at_random,
    "dead ends": of_dead_ends,
}


def round_times_ms(policy: Policy, tree: Tree) -> list[float]:
    """The CPU time of each round in milliseconds, without making the node itself."""
    rng = random.Random(1)
    times = []
    gc.collect()
    for _ in range(ROUNDS):
        begun = thread_time()
        selection = _selected(tree, policy, rng)
        tree.begin(tree.next_attempt, selection)
        selected = thread_time()

        attempt = next(iter(tree.pending))
        node = outcome(attempt, selection, rng)

        finished = thread_time()
        tree.add(node)
        times.append(1000 * (selected - begun + thread_time() - finished))
    return times


def main() -> int:
    """Measure every registered policy on every shape of tree; returns the exit code."""
    sys.stdout.write(f"{'policy':<16}{'tree':<12}{'median ms':>10}{'worst ms':>10}\n")
    worst = 0.0
    for name, make in POLICIES.items():
        for shape, grow in SHAPES.items():
            policy = make()
            times = round_times_ms(policy, grow(policy))
            worst = max(worst, *times)
            sys.stdout.write(f"{name:<16}{shape:<12}{median(times):>10.3f}{max(times):>10.3f}\n")
    verdict = "within" if worst <= LIMIT_MS else "over"
    sys.stdout.write(f"{verdict} the limit of {LIMIT_MS:g} ms at {ATTEMPTS} attempts\n")
    return 0 if worst <= LIMIT_MS else 1


def _attempt(tree: Tree, policy: Policy, rng: random.Random) -> Node:
    return outcome(tree.next_attempt, _selected(tree, policy, rng), rng)


def _selected(tree: Tree, policy: Policy, rng: random.Random) -> Selection:
    selection = policy.select(tree, rng)
    if selection is None:
        raise RuntimeError(f"{policy.name} waits with nothing in flight")
    return selection


if __name__ == "__main__":
    sys.exit(main())
