"""When a run has found what it is likely to find, by two simple rules. Knows no model and no money.

The first: the fastest attempt takes at most 5 % longer than anything could. The second: since the last gain as many
attempts have finished as it took to get there, and at least 10. If attempts were independent draws, one more would better the
best of m with a chance of 1 in m + 1; so the rule does not say that nothing is left, but that the next gain is likely
to cost as much again as all before it.
"""

from __future__ import annotations

from stark.core.evaluation import Correct
from stark.core.run import Ended
from stark.search.tree import Tree

PATIENCE = 10
"""Attempts without a gain that are always allowed: the first repairs and drafts need some."""

GAIN = 0.01
"""Relative; less is within what measurements of one program differ by."""


def enough(tree: Tree) -> Ended | None:
    """Why the run need not go on, if so."""
    best = tree.best
    if best is None:
        return None
    assert isinstance(best.evaluation, Correct)  # the leaderboard has no others
    if best.evaluation.near_roofline:
        launch = best.evaluation.bound == "launch"
        least = "what launching one kernel takes" if launch else "the roofline"
        detail = f"within {best.evaluation.headroom_percent} % of {least}"
        return Ended(kind="converged", detail=detail)
    last, finished = last_gain(tree), len(tree.nodes)
    without = finished - last
    if without >= max(PATIENCE, last):
        detail = f"{without} attempts without a gain after {last} that led to the best"
        return Ended(kind="converged", detail=detail)
    return None


def last_gain(tree: Tree) -> int:
    """How many attempts had finished when the best last improved; 0 while nothing works."""
    best, last = 0.0, 0
    for count, node in enumerate(tree.nodes, start=1):
        speedup = node.speedup_vs_eager or 0.0
        if speedup > best * (1 + GAIN):
            best, last = speedup, count
    return last
