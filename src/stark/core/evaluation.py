"""The judge's decision about a candidate: one of several statuses, each with its evidence.

There is one class per status, so a status cannot carry another's evidence: only `Correct` has
measurements. A failure of STARK itself is never an evaluation (see `core.errors`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter

from stark.core.base import Frozen
from stark.core.bottleneck import Profiled
from stark.core.cases import Weighing, least
from stark.core.declared import Tolerance
from stark.core.device import NEAR, Device, Roofline
from stark.core.measurement import Measurement, Speedup, speedup
from stark.core.precision import DEFAULT, Precision
from stark.core.profile import Profile

Phase = Literal["static", "build", "load", "verify", "time", "profile", "tools"]

Effort = Literal["race", "search", "promote"]
"""`search` does the least work that ranks candidates safely. `promote` is the final check: only this check can report a
win. `race` compares variants of one candidate: on the problem's own inputs, in a short window, without a profile. It ranks
nothing else."""


class EvaluationBase(Frozen):
    """The fields of every evaluation."""

    seconds: dict[Phase, float] = Field(default={})
    """Wall time that each phase took in the judge."""

    output: str = ""
    """What the candidate or its build printed; the middle of a long output is left out."""

    warnings: tuple[str, ...] = ()
    """Findings that do not decide the status, one sentence each."""

    sandbox: tuple[str, ...] = ()
    """Sandbox layers that were active when the candidate last ran. Empty if it never ran or no layer is recorded."""

    case: str | None = None
    """The case in which a candidate failed; None if it is correct, or if the problem has no cases."""


class Unusable(EvaluationBase):
    """There is no candidate to judge, for example because the model broke its role's rules even when asked again."""

    status: Literal["unusable"] = "unusable"
    reason: str


class BuildFailed(EvaluationBase):
    """The candidate does not parse, lacks `ModelNew`, breaks its language's rules, or does not compile."""

    status: Literal["build_failed"] = "build_failed"
    error: str


class Crashed(EvaluationBase):
    """The candidate's process raised an exception, exited or was killed by a signal."""

    status: Literal["crashed"] = "crashed"
    phase: Phase
    error: str


class TimedOut(EvaluationBase):
    """A phase did not end by its deadline."""

    status: Literal["timed_out"] = "timed_out"
    phase: Phase
    limit_s: float


class OutOfMemory(EvaluationBase):
    """The candidate needs more memory than it may use."""

    status: Literal["out_of_memory"] = "out_of_memory"
    phase: Phase
    error: str


class Incorrect(EvaluationBase):
    """The outputs are wrong, an input that must stay unchanged was changed, or a sanitizer found an error."""

    status: Literal["incorrect"] = "incorrect"
    error: str


class Rejected(EvaluationBase):
    """The candidate breaks the anti-cheating rule `rule`; `error` is the evidence."""

    status: Literal["rejected"] = "rejected"
    rule: str
    error: str


class Matched(Frozen):
    """How outputs stand by the tolerance that the problem states for another benchmark. It decides nothing."""

    tolerance: Tolerance
    share: float
    """The share of elements within the tolerance, of the output with the fewest, on the problem's own inputs."""

    @property
    def passes(self) -> bool:
        """Whether enough elements are within the tolerance."""
        return self.share >= self.tolerance.matched


class Accuracy(Frozen):
    """The worst error over all verified outputs, relative to the oracle (the expected outputs)."""

    relative_rms: float
    budget: float
    """The largest `relative_rms` that is accepted."""

    reference_relative_rms: float
    """The error of the reference itself in its own precision."""

    allclose: bool
    """Whether the outputs pass KernelBench's criterion, for comparison with published results."""

    precision: Precision = DEFAULT
    """The class that set the budget."""

    meets: Precision | None = None
    """The strictest class whose budget every output is within. It does not identify the candidate's arithmetic. None in
    results from before classes were recorded."""

    oracle: Literal["float64", "float32"]
    """`float64`: the reference computed in float64. `float32`: the reference's own outputs, if float64 fails."""

    stated: Matched | None = None
    """By the tolerance that the problem states; None if it states none."""


class Correct(EvaluationBase):
    """The outputs matched for every input that the judge drew. Only this status has measurements.

    If the problem has cases, `cases` has the evaluation of each. Then `candidate`, `references`, `roofline`, `profile` and
    `device` are those of the main case (`Weighing.main`), `accuracy` is the worst case's, and the properties below are
    over all cases: `speedup_vs` is the problem's objective.
    """

    status: Literal["correct"] = "correct"
    accuracy: Accuracy
    candidate: Measurement
    references: dict[str, Measurement]
    """The reference's times by name (`eager`, `compile`), each sampled in pairs with `candidate`."""

    device: Device
    roofline: Roofline
    effort: Effort = "search"
    generalizes: bool | None = None
    """Whether the candidate is also correct at shapes other than the problem's; None if no other shapes were tried."""

    shapes_tried: tuple[str, ...] = ()
    """The other shapes that were tried, as the changed constant, such as `N = 33`."""

    profile: Profile | None = None
    """Where the candidate's time goes, as its own process reported; None if there was no usable profile."""

    sanitized: tuple[str, ...] = ()
    """The checks for memory errors that found nothing: tools of NVIDIA's compute-sanitizer, or the compiler's sanitizers on
    a CPU. Empty if none ran."""

    cases: dict[str, Correct] = Field(default={})
    """The evaluation of each case, in the order of the problem's file; empty if the problem has no cases."""

    weighing: Weighing | None = None
    """The cases' weights and the objective; None if the problem has no cases."""

    @property
    def profiled(self) -> Profiled | None:
        """What is needed to find the bottleneck, if there is a profile; with several cases, in the main case."""
        if self.profile is None:
            return None
        ours = self.candidate
        noisy = any(self.speedup_vs(name).too_noisy for name in self.references)
        return Profiled(
            self.profile, ours.latency_ms, self.roofline, self.device, ours.host_ms, noisy
        )

    @property
    def latency_ms(self) -> float:
        """The candidate's median time for one call in milliseconds.

        With several cases, this is the weighted geometric mean of the cases' times, whatever the objective is. So the
        reference's time divided by it is about the geometric mean of the speedups.
        """
        if self.weighing is None:
            return self.candidate.latency_ms
        return self.weighing.mean({case: each.latency_ms for case, each in self.cases.items()})

    def reference_ms(self, reference: str) -> float:
        """The reference's time, as `latency_ms` is the candidate's. Raises KeyError if it was not measured."""
        if self.weighing is None:
            return self.references[reference].latency_ms
        times_ms = {case: each.reference_ms(reference) for case, each in self.cases.items()}
        return self.weighing.mean(times_ms)

    def speedup_vs(self, reference: str = "eager") -> Speedup:
        """Speedup against a named reference; with several cases, the objective (see `Weighing.speedup`).

        Raises KeyError if that reference was not measured, in every case.
        """
        if self.weighing is None:
            return speedup(reference, self.references[reference], self.candidate)
        return self.weighing.speedup(self.speedups_vs(reference))

    def speedups_vs(self, reference: str = "eager") -> dict[str, Speedup]:
        """The speedup in each case; empty if the problem has no cases."""
        return {case: each.speedup_vs(reference) for case, each in self.cases.items()}

    @property
    def roofline_is_known(self) -> bool:
        """False if it is not confirmed, or the candidate or eager mode is faster, so that it is no bound; in any case."""
        if self.weighing is not None:
            return all(each.roofline_is_known for each in self.cases.values())
        times_ms = [self.latency_ms, *(each.latency_ms for each in self.references.values())]
        return self.roofline.is_known(min(times_ms))

    @property
    def roofline_fraction(self) -> float | None:
        """The roofline's time divided by the candidate's, where 1 is the roofline; None if the roofline is unknown.

        With several cases, this is the geometric mean, or for the objective `worst` that of the case with the smallest
        speedup. So it is by how much the objective can still grow, as is `headroom`.
        """
        if not self.roofline_is_known:
            return None
        return self._over_cases(lambda each: each.roofline.floor_ms / each.candidate.latency_ms)

    @property
    def headroom(self) -> float:
        """How much slower the candidate is than the roofline or one kernel launch, whichever takes longer.

        0.1 means 10 % slower. The value is never below 0; it is infinite if both times are unknown, in any case. With
        several cases, it is combined as `roofline_fraction` is.
        """
        return self._over_cases(lambda each: max(each._times_the_least, 1.0)) - 1

    @property
    def _times_the_least(self) -> float:
        """The time in the main case divided by the least possible time."""
        least_ms = max(self.roofline.floor_ms, self.device.launch_ms)
        return self.candidate.latency_ms / least_ms if least_ms else math.inf

    def _over_cases(self, figure: Callable[[Correct], float]) -> float:
        """A figure of one case, or the cases' figures as one that belongs to the objective."""
        if self.weighing is None:
            return figure(self)
        by_case = {case: figure(each) for case, each in self.cases.items()}
        return self.weighing.figure(by_case, self.speedups_vs())

    @property
    def headroom_percent(self) -> int:
        """`headroom` in whole percent, rounded up. Raises OverflowError if it is infinite."""
        return math.ceil(round(100 * self.headroom, 6))

    @property
    def near_roofline(self) -> bool:
        """Whether little is left to gain. False if the roofline is unknown."""
        return self.headroom <= NEAR and self.roofline_is_known

    @property
    def bound(self) -> Literal["memory", "compute", "launch"]:
        """The resource that sets the minimum time: memory traffic, arithmetic, or the launch of one kernel.

        With several cases, this is about the case with the smallest speedup.
        """
        if self.weighing is not None:
            return self.cases[least(self.speedups_vs())].bound
        return "launch" if self.device.launch_ms > self.roofline.floor_ms else self.roofline.bound


class Untimed(EvaluationBase):
    """The outputs matched, and the candidate was not timed. Only a check ends so, and no run stores it."""

    status: Literal["correct"] = "correct"
    accuracy: Accuracy


_Failure = Incorrect | BuildFailed | Crashed | TimedOut | OutOfMemory | Rejected | Unusable
_Any = Correct | _Failure
Evaluation = Annotated[_Any, Field(discriminator="status")]
Check = Annotated[Untimed | _Failure, Field(discriminator="status")]
"""The result of a check: build and correctness only."""

STATUSES: tuple[str, ...] = tuple(kind.model_fields["status"].default for kind in get_args(_Any))

evaluation_adapter: TypeAdapter[Evaluation] = TypeAdapter(Evaluation)
"""Reads and writes any evaluation as JSON."""
