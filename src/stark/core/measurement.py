"""Measured times, and the speedup that follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import mean, median, stdev
from typing import Literal

from pydantic import Field

from stark.core.base import Frozen


class Measurement(Frozen):
    """The raw times of one program, from one uninterrupted series of measurements."""

    samples_ms: tuple[float, ...] = Field(min_length=1)
    """Milliseconds per call: one value per block of `calls_per_sample` calls, in the order of measurement."""

    calls_per_sample: int = Field(ge=1)
    warmups: int = Field(ge=0)
    clock: Literal["device_events", "judge_wall"]
    """`device_events`: events in the judge's own stream on the device. `judge_wall`: the judge's own clock on the host."""

    cache: Literal["cold", "warm"]
    """Whether the device's last-level cache was overwritten before each call."""

    resolution_ms: float = Field(default=0.0, ge=0)
    """The part of the latency's error that more samples do not reduce, in milliseconds. It comes from steady
    differences between processes that run the same program, the cost of requests, and disagreement between clocks. If
    the judge cannot tell how large this error is, the value is 1000 times the latency."""

    host_ms: float | None = Field(default=None, ge=0)
    """On a GPU, about how many milliseconds the host takes to launch a call; not a part of the latency. None if unknown:
    the program waits for the device inside a call. A candidate could make it look shorter."""

    @property
    def latency_ms(self) -> float:
        """The median time of one call in milliseconds."""
        return median(self.samples_ms)


NOISY = 2.0
"""An interval whose ends differ by more than this factor is too wide to rank by."""


STUDENT = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's 97.5 % quantiles for so many pairs, whose range covers the median in fewer than 95 of 100 cases: 75 for three."""


class Speedup(Frozen):
    """How many times faster a candidate is than a named reference, with a 95 % interval."""

    reference: str
    ratio: float
    low: float
    high: float

    @property
    def too_noisy(self) -> bool:
        """Whether the interval is too wide for the ratio to mean anything."""
        return self.low <= 0 or self.high / self.low > NOISY

    def overlaps(self, other: Speedup) -> bool:
        """Whether the two intervals share a value, so that the measurements cannot tell which is faster."""
        return self.low <= other.high and other.low <= self.high


@lru_cache(maxsize=1 << 14)
def speedup(reference_name: str, reference: Measurement, candidate: Measurement) -> Speedup:
    """Reference latency divided by candidate latency, from samples taken in pairs.

    The i-th samples of the two programs were taken next to each other, so slow drift of the machine cancels in their
    ratio. The result is the median of these ratios. Its 95 % interval comes from order statistics, which assume no
    distribution; with fewer than six pairs it is Student's interval of the ratios' logarithms, and at least their range.
    The interval is then widened by the larger of the two relative resolutions.

    Raises ValueError if the two measurements have different numbers of samples.
    """
    pairs = zip(reference.samples_ms, candidate.samples_ms, strict=True)
    unsure = 1 + max(one.resolution_ms / one.latency_ms for one in (reference, candidate))
    return speedup_of(reference_name, [math.log(base / ours) for base, ours in pairs], unsure)


def speedup_of(reference_name: str, log_ratios: Sequence[float], unsure: float = 1.0) -> Speedup:
    """The median of ratios, given as logarithms, with its 95 % interval (`speedup`), widened by `unsure`."""
    ratios = sorted(log_ratios)
    cut = _median_interval_rank(len(ratios))
    low, high = ratios[cut], ratios[-1 - cut]
    if len(ratios) in STUDENT:
        half = STUDENT[len(ratios)] * stdev(ratios) / math.sqrt(len(ratios))
        low, high = min(low, mean(ratios) - half), max(high, mean(ratios) + half)
    return Speedup(
        reference=reference_name,
        ratio=math.exp(median(ratios)),
        low=math.exp(low) / unsure,
        high=math.exp(high) * unsure,
    )


@lru_cache
def _median_interval_rank(count: int, level: float = 0.95) -> int:
    """The largest k for which [x(k), x(n-1-k)] covers the median with probability `level` or more; 0 if none does."""
    tail, rank = 0.0, 0
    for k in range(count // 2):
        tail += math.comb(count, k) / 2**count
        if 1 - 2 * tail < level:
            break
        rank = k
    return rank
