"""What candidates of a run are judged within, and what else they are run under: asked for once, the same for all of them."""

from __future__ import annotations

from pydantic import Field

from stark.core.base import Frozen


class Limits(Frozen):
    """Deadlines and bounds for one candidate. Times in seconds, memory in GB."""

    build_s: float = Field(default=180.0, gt=0)
    load_s: float = Field(default=60.0, gt=0)
    verify_s: float = Field(default=60.0, gt=0)
    """For all verified calls together, over what the reference takes for them."""

    time_s: float = Field(default=60.0, gt=0)
    """For all timed calls together, over what the reference takes for them."""

    timing_budget_s: float = Field(default=2.0, gt=0)
    """How long paired timing goes on while its interval is still wide."""

    memory_gb: float = Field(default=16.0, gt=0)
    """Host memory of the candidate's own process, beside what it shares with the judge; a build has a bound of its
    own. On a CPU it bounds the address space of each process that it starts too; a device's own memory is not counted."""

    output_kb: int = Field(default=64, ge=1)
    """How much of what a candidate prints is kept."""


class Tools(Frozen):
    """What a correct candidate is run under as well on a GPU: NVIDIA's tools, each of which takes seconds."""

    counters: bool = False
    """Nsight Compute, for the profile: what holds its kernels up."""

    sanitizer: bool = False
    """compute-sanitizer, at `promote`: a finding makes a candidate incorrect whose results are right."""

    def __or__(self, other: Tools) -> Tools:
        """Those of both."""
        return Tools(
            counters=self.counters or other.counters, sanitizer=self.sanitizer or other.sanitizer
        )
