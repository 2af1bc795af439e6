"""What the judge decided about a candidate: one of several statuses, each with its evidence.

There is one class per status, so a status cannot carry another's evidence: only `Correct` has
measurements. A failure of our own machinery is never an evaluation (see `core.errors`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from stark.core.base import Frozen
from stark.core.bottleneck import Profiled
from stark.core.device import Device, Roofline
from stark.core.measurement import Measurement, Speedup, speedup
from stark.core.profile import Profile

Phase = Literal["static", "build", "load", "verify", "time", "profile", "tools"]

Effort = Literal["search", "promote"]
"""`search` does the least that ranks candidates safely; `promote` does everything, and a win counts only after it."""


class Outcome(Frozen):
    """What every evaluation carries."""

    seconds: dict[Phase, float] = Field(default={})
    """Wall time that each phase took in the judge."""

    output: str = ""
    """The end of what the candidate printed, bounded."""

    warnings: tuple[str, ...] = ()
    """Findings that do not decide the status, one sentence each."""

    sandbox: tuple[str, ...] = ()
    """The layers that held its program in place when it last ran; empty if none of it ran, or if nobody noted it."""


class Unusable(Outcome):
    """The reply held no candidate that keeps its role's rules, even after it was sent back."""

    status: Literal["unusable"] = "unusable"
    reason: str


class BuildFailed(Outcome):
    """It does not parse, lacks `ModelNew`, breaks its language's rules, or does not compile."""

    status: Literal["build_failed"] = "build_failed"
    error: str


class Crashed(Outcome):
    """Its process raised, exited or died by a signal."""

    status: Literal["crashed"] = "crashed"
    phase: Phase
    error: str


class TimedOut(Outcome):
    """A phase did not end by its deadline."""

    status: Literal["timed_out"] = "timed_out"
    phase: Phase
    limit_s: float


class OutOfMemory(Outcome):
    """It asked for more memory than it may have."""

    status: Literal["out_of_memory"] = "out_of_memory"
    phase: Phase
    error: str


class Incorrect(Outcome):
    """It ran, and what it returned is not what the reference returns."""

    status: Literal["incorrect"] = "incorrect"
    error: str
    """Where and how wrong, in one or a few lines."""


class Rejected(Outcome):
    """It cheats: the rule, and what was seen."""

    status: Literal["rejected"] = "rejected"
    rule: str
    error: str


class Accuracy(Frozen):
    """The worst error over all verified outputs, against the float64 oracle."""

    relative_rms: float
    budget: float
    """What `relative_rms` was allowed to be."""

    reference_relative_rms: float
    """The error of the reference itself in its own precision."""

    allclose: bool
    """KernelBench's own criterion at its tolerances, for comparison with published results."""

    oracle: Literal["float64", "float32"]


NEAR = 0.05
"""Relative distance from the least possible time that counts as having reached it: rooflines are not known better."""


class Correct(Outcome):
    """It computes the same function; the only status with measurements."""

    status: Literal["correct"] = "correct"
    accuracy: Accuracy
    candidate: Measurement
    references: dict[str, Measurement]
    """By name (`eager`, `compile`), each taken in pairs with `candidate`."""

    device: Device
    roofline: Roofline
    effort: Effort = "search"
    generalizes: bool | None = None
    """Whether it is also correct at other shapes than the problem's; None where that was not tried, or cannot be."""

    profile: Profile | None = None
    """What it spends its time on, as its own process told; None where that was not to be had."""

    sanitized: tuple[str, ...] = ()
    """The tools of NVIDIA's compute-sanitizer under which it ran without a finding; empty where it was not run under any."""

    @property
    def profiled(self) -> Profiled | None:
        """The profile beside its time and the device: what binds it."""
        if self.profile is None:
            return None
        return Profiled(
            profile=self.profile,
            latency_ms=self.latency_ms,
            roofline=self.roofline,
            device=self.device,
        )

    @property
    def latency_ms(self) -> float:
        """The candidate's median time for one call in milliseconds."""
        return self.candidate.latency_ms

    def speedup_vs(self, reference: str = "eager") -> Speedup:
        """Speedup against a named reference. Raises KeyError for one that was not measured."""
        return speedup(reference, self.references[reference], self.candidate)

    @property
    def roofline_fraction(self) -> float:
        """Share of the device's best possible speed that was reached (1 is the roofline)."""
        return self.roofline.floor_ms / self.latency_ms

    @property
    def over_the_least(self) -> float:
        """By what share it takes longer than anything could: than the roofline, or than launching one kernel.

        Zero for what is faster than that, as what stays in a cache can be; infinite where neither is known.
        """
        least_ms = max(self.roofline.floor_ms, self.device.launch_ms)
        return max(self.latency_ms / least_ms - 1, 0.0) if least_ms else math.inf

    @property
    def percent_over_the_least(self) -> int:
        """The same in whole percent, rounded up. Raises OverflowError where neither is known."""
        return math.ceil(round(100 * self.over_the_least, 6))

    @property
    def near_the_least(self) -> bool:
        """Whether so little is left to gain that looking for it is hardly worth an attempt."""
        return self.over_the_least <= NEAR

    @property
    def bound(self) -> Literal["memory", "compute", "launch"]:
        """What takes longest at best: the bytes, the operations, or the launch of a single kernel."""
        if self.device.launch_ms > self.roofline.floor_ms:
            return "launch"
        return self.roofline.bound


Evaluation = Annotated[
    Unusable | BuildFailed | Crashed | TimedOut | OutOfMemory | Incorrect | Rejected | Correct,
    Field(discriminator="status"),
]

STATUSES = (
    "correct",
    "incorrect",
    "build_failed",
    "crashed",
    "timed_out",
    "out_of_memory",
    "rejected",
    "unusable",
)

evaluation_adapter: TypeAdapter[Evaluation] = TypeAdapter(Evaluation)
"""Reads and writes any evaluation as JSON."""


def explain(evaluation: Evaluation) -> str:
    """All that a reader needs, in order of use: the same text for people and for the agents."""
    notes = [f"Note: {warning}" for warning in evaluation.warnings]
    profiled = evaluation.profiled if isinstance(evaluation, Correct) else None
    profile = [] if profiled is None else profiled.lines()
    clean = _clean(evaluation) if isinstance(evaluation, Correct) else []
    return "\n".join([evidence(evaluation), *profile, *clean, *notes])


def _clean(correct: Correct) -> list[str]:
    if not correct.sanitized:
        return []
    return [f"compute-sanitizer found nothing: {', '.join(correct.sanitized)}"]


def evidence(evaluation: Evaluation) -> str:
    """What decided the status, in a few lines."""
    match evaluation:
        case Correct():
            return "\n".join(_measured(evaluation))
        case TimedOut():
            return f"the {evaluation.phase} phase did not end within {evaluation.limit_s:g} s"
        case Unusable():
            return evaluation.reason
        case Crashed() | OutOfMemory():
            return f"in the {evaluation.phase} phase: {evaluation.error}"
        case Rejected():
            return f"rule {evaluation.rule}: {evaluation.error}"
        case BuildFailed() | Incorrect():
            return evaluation.error


def _measured(correct: Correct) -> Iterator[str]:
    """The speedup against every reference, eager first, then how far it is from the best that is possible."""
    names = sorted(correct.references, key=lambda name: name != "eager")
    speedups = [correct.speedup_vs(name) for name in names]
    said = [f"{found}, {found.meaning}" for found in speedups]
    yield f"correct, {correct.latency_ms:.4g} ms: {said[0]}"
    yield from said[1:]
    limit = f"{correct.roofline.floor_ms:.4g} ms at best"
    if correct.bound == "launch":
        limit += f", and launching one kernel costs {correct.device.launch_ms:.4g} ms"
    yield f"{correct.roofline_fraction:.0%} of the roofline ({correct.bound}-bound: {limit})"
