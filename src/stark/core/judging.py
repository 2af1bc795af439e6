"""Defines the limits, the error budget and the optional tools that apply to every candidate of a run."""

from __future__ import annotations

from pydantic import Field

from stark.core.base import Frozen
from stark.core.precision import DEFAULT, Precision


class Limits(Frozen):
    """Deadlines, resource limits and the error budget of one candidate. Times are in seconds, memory is in GB."""

    build_s: float = Field(default=180.0, gt=0)
    load_s: float = Field(default=60.0, gt=0)
    verify_s: float = Field(default=60.0, gt=0)
    """For all calls of verification together, in addition to the time that the reference needs for them."""

    time_s: float = Field(default=60.0, gt=0)
    """For all timed calls together, in addition to the time that the reference needs for them."""

    timing_budget_s: float = Field(default=2.0, gt=0)
    """Time per reference after which timing ends even if the confidence interval is still wide."""

    problem_s: float = Field(default=300.0, gt=0)
    """For each call of the problem's own functions by the judge."""

    memory_gb: float = Field(default=16.0, gt=0)
    """Host memory of the candidate's process, not counting memory shared with the judge. Builds have a separate limit.
    On a CPU, `memory_gb` also limits the address space of each process that the candidate starts."""

    output_kb: int = Field(default=64, ge=1)
    """How much of a candidate's printed output is kept."""

    precision: Precision = DEFAULT
    """The class whose error budget applies."""


class Tools(Frozen):
    """Tools that run a correct candidate once more, which takes seconds."""

    counters: bool = False
    """On a GPU, add Nsight Compute's counters to the profile."""

    sanitizer: bool | None = None
    """At the final check, look for memory errors; any finding makes the candidate incorrect.

    On a CPU, AddressSanitizer and UndefinedBehaviorSanitizer check C++ unless this is False. On a GPU, compute-sanitizer
    checks kernels only if this is True.
    """
