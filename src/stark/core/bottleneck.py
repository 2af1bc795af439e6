"""What limits a program: the resource that most of a call's time goes to.

The rule is ours. Memory traffic, arithmetic, or time without any kernel is the bottleneck if it takes at least half of
the call. Otherwise the longest step and its counters give the likeliest reason. Texts state both wherever both matter,
so that a program on either side of the threshold reads much the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from stark.core.base import Frozen
from stark.core.device import NEAR, Device, Roofline
from stark.core.profile import BUSY, KernelCounters, Profile

BINDING = 0.5
"""A resource that takes at least this share of a call's time is the bottleneck."""

FEW_CORES = 0.6
"""If less than this share of the cores is busy, the idle cores are the bottleneck."""

NEW_PAGES = 0.3
"""If at least this share of the processor time is in the operating system and pages are new, those are the bottleneck."""

SEVERAL = 4
"""From this number of kernels on, it matters how long the host takes to launch them."""

LONGEST_NAME = 60

Resource = Literal["memory", "compute", "launch"]
Kind = Literal["memory", "compute", "launch", "spills", "blocks", "cores", "pages", "latency"]


class Bottleneck(Frozen):
    """What limits a program, as data; `explain.profile` turns it into English."""

    kind: Kind
    counters: KernelCounters | None = None
    """The counters of the longest kernel; None if they were not read or not needed."""


@dataclass(frozen=True)
class Profiled:
    """A profile, the time that was measured without a profiler, and the device's limits."""

    profile: Profile
    latency_ms: float
    roofline: Roofline
    device: Device
    host_ms: float | None = None
    """Milliseconds that the host takes to launch a call on a GPU, if known."""

    noisy: bool = False
    """Whether the time is too noisy to tell what limits the program."""

    @property
    def memory_share(self) -> float:
        """Achieved bandwidth, counting every byte once, relative to the device's measured bandwidth."""
        return self.roofline.memory_ms / self.latency_ms

    @property
    def compute_share(self) -> float:
        """Achieved arithmetic rate relative to the device's measured peak in `arithmetic`."""
        roof = self.roofline
        least_ms = roof.own_compute_ms if self._as_the_reference else roof.compute_ms
        return least_ms / self.latency_ms

    @property
    def arithmetic(self) -> str:
        """What the program probably computes in: as the reference, unless it is faster than that allows."""
        roof = self.roofline
        return roof.own_arithmetic if self._as_the_reference else roof.arithmetic

    @property
    def _as_the_reference(self) -> bool:
        return self.roofline.own_compute_ms <= (1 + NEAR) * self.latency_ms

    @property
    def idle_share(self) -> float | None:
        """Share of a call in which no kernel runs; None on a CPU.

        The time of a call is the device's, or the host's if that takes longer to launch several kernels. A single
        kernel cannot be launched by less.
        """
        if self.profile.clock == "host":
            return None
        hosts = (self.host_ms or 0.0) if self.profile.count >= SEVERAL else 0.0
        return max(1 - self.profile.busy_ms / max(self.latency_ms, hosts), 0.0)

    @property
    def busiest(self) -> tuple[Resource, float]:
        """The resource that takes most of the call, and its share of the call's time."""
        shares: dict[Resource, float] = {
            "launch": self.idle_share or 0.0,
            "memory": self.memory_share,
            "compute": self.compute_share,
        }
        return max(shares.items(), key=lambda each: each[1])

    @property
    def bottleneck(self) -> Bottleneck:
        """The bottleneck by this module's rule."""
        kind, share = self.busiest
        return Bottleneck(kind=kind) if share >= BINDING else self.likeliest

    @property
    def likeliest(self) -> Bottleneck:
        """The likeliest reason for the time that the busiest resource does not take."""
        cores, processors = self.profile.busy_cores, self.device.processors
        if cores is not None and processors > 1 and cores < FEW_CORES * processors:
            return Bottleneck(kind="cores")
        if (self.profile.system_share or 0.0) >= NEW_PAGES and (self.profile.page_faults or 0) >= 1:
            return Bottleneck(kind="pages")
        launch, counters = self.profile.steps[0].launch, self._counters()
        if launch is not None and launch.spilled_bytes:
            return Bottleneck(kind="spills")
        kind: Kind = "latency"
        if counters is not None and (counters.dram or 0.0) >= BUSY:
            kind = "memory"
        elif counters is not None and max(counters.tensor or 0.0, counters.issue or 0.0) >= BUSY:
            kind = "compute"
        elif launch is not None and launch.blocks < processors:
            kind = "blocks"
        return Bottleneck(kind=kind, counters=counters)

    def _counters(self) -> KernelCounters | None:
        """The counters of the longest step's kernel.

        None unless Nsight Compute finds the same kernel longest, with at least half of the total kernel time.
        """
        first = next(iter(self.profile.counters), None)
        longest = kernel_name(self.profile.steps[0].name)
        leads = first is not None and first.share >= BINDING and kernel_name(first.name) == longest
        return first if leads else None


def kernel_name(name: str) -> str:
    """A kernel's name without its return type, template arguments and parameters."""
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    while (bare := re.sub("<[^<>]*>", "", plain)) != plain:
        plain = bare
    plain = plain.partition("(")[0].strip() or name
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 1]}…"
