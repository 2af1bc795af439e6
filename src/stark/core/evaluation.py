"""The judge's decision about a candidate: one of several statuses, each with its evidence.

There is one class per status, so a status cannot carry another's evidence: only `Correct` has
measurements. A failure of STARK itself is never an evaluation (see `core.errors`).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter

from stark.core.base import Frozen
from stark.core.bottleneck import Profiled
from stark.core.device import Device, Roofline
from stark.core.measurement import Measurement, Speedup, speedup
from stark.core.profile import Profile

Phase = Literal["static", "build", "load", "verify", "time", "profile", "tools"]

Effort = Literal["search", "promote"]
"""`search` does the least that ranks candidates safely; only what `promote`, the final check, measured is a win."""


class EvaluationBase(Frozen):
    """The fields of every evaluation."""

    seconds: dict[Phase, float] = Field(default={})
    """Wall time that each phase took in the judge."""

    output: str = ""
    """The end of what the candidate printed, bounded."""

    warnings: tuple[str, ...] = ()
    """Findings that do not decide the status, one sentence each."""

    sandbox: tuple[str, ...] = ()
    """The sandbox layers that were active when it last ran; empty if it did not run, or in old evaluations."""


class Unusable(EvaluationBase):
    """The reply contained no candidate that follows its role's rules, even after it was sent back."""

    status: Literal["unusable"] = "unusable"
    reason: str


class BuildFailed(EvaluationBase):
    """It does not parse, lacks `ModelNew`, breaks its language's rules, or does not compile."""

    status: Literal["build_failed"] = "build_failed"
    error: str


class Crashed(EvaluationBase):
    """Its process raised, exited or died by a signal."""

    status: Literal["crashed"] = "crashed"
    phase: Phase
    error: str


class TimedOut(EvaluationBase):
    """A phase did not end by its deadline."""

    status: Literal["timed_out"] = "timed_out"
    phase: Phase
    limit_s: float


class OutOfMemory(EvaluationBase):
    """It asked for more memory than it may have."""

    status: Literal["out_of_memory"] = "out_of_memory"
    phase: Phase
    error: str


class Incorrect(EvaluationBase):
    """It ran and gave wrong outputs, changed an input that the reference leaves alone, or failed compute-sanitizer."""

    status: Literal["incorrect"] = "incorrect"
    error: str


class Rejected(EvaluationBase):
    """It breaks the anti-cheating rule `rule`; `error` is the evidence."""

    status: Literal["rejected"] = "rejected"
    rule: str
    error: str


class Accuracy(Frozen):
    """The worst error over all verified outputs, against the oracle (float64 where possible)."""

    relative_rms: float
    budget: float
    """The largest `relative_rms` that is accepted."""

    reference_relative_rms: float
    """The error of the reference itself in its own precision."""

    allclose: bool
    """Whether it passes KernelBench's criterion, for comparison with published results."""

    oracle: Literal["float64", "float32"]
    """`float64`, or `float32` where no float64 oracle is possible and the reference's own outputs replace it."""


NEAR = 0.05
"""Relative uncertainty of a roofline: times within this fraction count as reaching it; times further below contradict it."""


class Correct(EvaluationBase):
    """Its outputs matched on every drawn input; the only status with measurements."""

    status: Literal["correct"] = "correct"
    accuracy: Accuracy
    candidate: Measurement
    references: dict[str, Measurement]
    """By name (`eager`, `compile`), each sampled in pairs with `candidate`."""

    device: Device
    roofline: Roofline
    effort: Effort = "search"
    generalizes: bool | None = None
    """Whether it is also correct at shapes other than the problem's; None if no others were tried."""

    profile: Profile | None = None
    """Where its time goes, as its own process reported; None if there was no usable profile."""

    sanitized: tuple[str, ...] = ()
    """The tools of NVIDIA's compute-sanitizer that found nothing; empty if none ran."""

    @property
    def profiled(self) -> Profiled | None:
        """What is needed to find the bottleneck, if there is a profile."""
        if self.profile is None:
            return None
        return Profiled(self.profile, self.latency_ms, self.roofline, self.device)

    @property
    def latency_ms(self) -> float:
        """The candidate's median time for one call in milliseconds."""
        return self.candidate.latency_ms

    def speedup_vs(self, reference: str = "eager") -> Speedup:
        """Speedup against a named reference. Raises KeyError for one that was not measured."""
        return speedup(reference, self.references[reference], self.candidate)

    @property
    def roofline_fraction(self) -> float:
        """The roofline's time divided by the candidate's; 1 is the roofline."""
        return self.roofline.floor_ms / self.latency_ms

    @property
    def headroom(self) -> float:
        """Slowdown relative to the roofline or one launch, whichever is longer: 0 or more, infinite if unknown."""
        least_ms = max(self.roofline.floor_ms, self.device.launch_ms)
        return max(self.latency_ms / least_ms - 1, 0.0) if least_ms else math.inf

    @property
    def headroom_percent(self) -> int:
        """`headroom` in whole percent, rounded up. Raises OverflowError if it is infinite."""
        return math.ceil(round(100 * self.headroom, 6))

    @property
    def near_roofline(self) -> bool:
        """Whether little is left to gain. False below the roofline, which is then no bound for this candidate."""
        return self.headroom <= NEAR and not beats_roofline(self.roofline, self.latency_ms)

    @property
    def bound(self) -> Literal["memory", "compute", "launch"]:
        """The resource that sets the minimum time: memory traffic, arithmetic, or the launch of one kernel."""
        return "launch" if self.device.launch_ms > self.roofline.floor_ms else self.roofline.bound


def beats_roofline(roofline: Roofline, latency_ms: float) -> bool:
    """Whether a time is below the roofline by more than the roofline's uncertainty."""
    return latency_ms < (1 - NEAR) * roofline.floor_ms


_Any = Correct | Incorrect | BuildFailed | Crashed | TimedOut | OutOfMemory | Rejected | Unusable
Evaluation = Annotated[_Any, Field(discriminator="status")]

STATUSES: tuple[str, ...] = tuple(kind.model_fields["status"].default for kind in get_args(_Any))

evaluation_adapter: TypeAdapter[Evaluation] = TypeAdapter(Evaluation)
"""Reads and writes any evaluation as JSON."""
