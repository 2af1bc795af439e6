"""Computes confidence intervals of proportions, and the spread of repeated measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median


def binomial_interval(hits: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """The Clopper-Pearson interval of a proportion with `hits` of `count`."""
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _root(lambda p: 1 - _at_most(hits - 1, count, p) - tail)
    high = 1.0 if hits == count else _root(lambda p: tail - _at_most(hits, count, p))
    return low, high


def spread(values: Sequence[float]) -> float:
    """The range relative to the median."""
    return (max(values) - min(values)) / median(values)


def _at_most(hits: int, count: int, share: float) -> float:
    return sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(hits + 1))


def _root(rising: Callable[[float], float]) -> float:
    """The root in [0, 1] of an increasing function."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
