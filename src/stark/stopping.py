"""Two rules for stopping a run when more attempts are unlikely to pay off. The rules ignore models and costs.

First rule: the fastest attempt takes at most 5 % longer than the least possible time. The least
possible time is an estimate: the roofline or the time of one kernel launch, whichever is longer.

Second rule: the number of attempts finished since the last gain is at least 10, and at least the number finished up to
that gain. If attempts were independent draws, attempt m + 1 would beat the best of the first m with probability
1 / (m + 1). So a further gain remains possible, but it is likely to need as many attempts again as were made up to the
last gain.
"""

from __future__ import annotations

from stark.core.evaluation import Correct
from stark.core.run import Ended
from stark.core.standing import vs_eager
from stark.search.tree import Tree

PATIENCE = 10
"""A run may always make this many attempts without a gain, since the first drafts and their repairs need several."""

GAIN = 0.01
"""Least relative improvement that counts as a gain; less is within the noise of measuring one program."""


def enough(tree: Tree) -> Ended | None:
    """Why the run can stop early, or None."""
    best = tree.best
    if best is None:
        return None
    assert isinstance(best.evaluation, Correct)  # the leaderboard has no others
    if best.evaluation.near_roofline:
        launch = best.evaluation.bound == "launch"
        least = "the time of one kernel launch" if launch else "the roofline"
        if best.evaluation.weighing is not None:
            least = "the least possible times of its cases"
        detail = f"within {best.evaluation.headroom_percent} % of {least}"
        return Ended(kind="converged", detail=detail)
    last, finished = last_gain(tree), tree.made
    without = finished - last
    if without >= max(PATIENCE, last):
        detail = (
            f"no gain in the last {without} attempts; the last gain came within the first {last}"
        )
        return Ended(kind="converged", detail=detail)
    return None


def last_gain(tree: Tree) -> int:
    """How many attempts had finished when the best speedup last improved. Those that are too noisy to rank do not count."""
    best, last, count = 0.0, 0, 0
    for node in tree.nodes:
        count += node.counts
        found = vs_eager(node.evaluation)
        if found is not None and not found.too_noisy and found.ratio > best * (1 + GAIN):
            best, last = found.ratio, count
    return last
