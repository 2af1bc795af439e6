"""Several cases of one problem: their weights, and how their figures become one."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import Field

from stark.core.base import Frozen
from stark.core.declared import Objective
from stark.core.measurement import Speedup


class Weighing(Frozen):
    """How the cases of a problem count."""

    weights: dict[str, float] = Field(min_length=1)
    """Positive weights by case, in the order of the problem's file."""

    objective: Objective

    @property
    def main(self) -> str:
        """The case with the largest weight; the first of those with equal weights."""
        return max(self.weights, key=lambda case: self.weights[case])

    def mean(self, by_case: Mapping[str, float]) -> float:
        """The weighted geometric mean of a figure, whatever the objective is. The figures must not be negative."""
        if not all(by_case.values()):
            return 0.0
        total = sum(self.weights.values())
        logs = (weight * math.log(by_case[case]) for case, weight in self.weights.items())
        return math.exp(sum(logs) / total)

    def speedup(self, by_case: Mapping[str, Speedup]) -> Speedup:
        """The objective over the cases' speedups against one reference, with a 95 % interval.

        `geomean`: ratio and ends are the weighted geometric means of the cases' ratios and ends. On a log scale the ends
        add up linearly. The standard deviation of a weighted sum is at most the weighted sum of the standard deviations,
        however the cases' errors are correlated. So for errors that are about normal the interval covers at least 95 %;
        it is wider than needed if the errors are independent. Steady errors, which widen each case's interval, add up in
        the same way at worst.

        `worst`: ratio and ends are the smallest ratio, the smallest low end and the smallest high end. If the true
        minimum is below the low end, then the truly worst case is below its own low end. That happens in at most 2.5 %
        of all measurements, for any number of cases. If the true minimum is above the high end, then at least one case is
        above its own high end, which happens in at most 2.5 % for each case. So the low end, by which required and
        claimed speedups are checked, is as safe as in a single case, and the high end is less so.
        """
        found = [by_case[case] for case in self.weights]
        if self.objective == "worst":
            ratio, low, high = (
                min(getattr(one, end) for one in found) for end in ("ratio", "low", "high")
            )
        else:
            ratio, low, high = (
                self.mean({case: getattr(by_case[case], end) for case in self.weights})
                for end in ("ratio", "low", "high")
            )
        return Speedup(reference=found[0].reference, ratio=ratio, low=low, high=high)

    def figure(self, by_case: Mapping[str, float], speedups: Mapping[str, Speedup]) -> float:
        """A figure that belongs to the objective: for `worst`, that of the case with the smallest speedup."""
        if self.objective == "worst":
            return by_case[least(speedups)]
        return self.mean(by_case)


def least(speedups: Mapping[str, Speedup]) -> str:
    """The case with the smallest speedup; the first of those with equal speedups."""
    return min(speedups, key=lambda case: speedups[case].ratio)
