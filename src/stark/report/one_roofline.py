"""One roofline for a whole run: the reference's.

The judge measures limits again in later windows, so evaluations of one run may carry different rooflines. Shares of the
roofline can be compared only against one.
"""

from __future__ import annotations

from stark.core.evaluation import Correct, Evaluation
from stark.core.reference import Reference


def on_one_roofline(evaluation: Evaluation, reference: Reference | None) -> Evaluation:
    """The evaluation with the reference's roofline in place of its own, in every case."""
    if reference is None or not isinstance(evaluation, Correct):
        return evaluation
    cases = {
        name: each.model_copy(update={"roofline": reference.cases.get(name, each).roofline})
        for name, each in evaluation.cases.items()
    }
    return evaluation.model_copy(update={"roofline": reference.roofline, "cases": cases})
