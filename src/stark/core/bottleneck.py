"""What binds a program: the one thing that most of its time goes to, named in words.

The rule is ours: a call's time holds what its bytes need at least, what its operations need at least, and the time
in which no kernel ran. What is more than half of the call names it; otherwise neither the device's memory nor its
arithmetic is used well, and what is known of the kernels says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from stark.core.base import Frozen
from stark.core.counters import BUSY, KernelCounters
from stark.core.device import Device, Roofline
from stark.core.profile import OUTSIDE, Profile, Step

BINDING = 0.5
"""Share of a call's time from which something binds it."""

MATTERS = 0.05
"""Share of the time from which a step is worth a word."""

FEW_CORES = 0.6
LOW_OCCUPANCY = 0.25
SHOWN, SHOWN_COUNTED = 5, 3
LONGEST_NAME = 60

Kind = Literal["memory", "compute", "launch", "spills", "blocks", "cores", "latency"]


class Bottleneck(Frozen):
    """What binds a program, for programs and for people."""

    kind: Kind
    text: str


class Profiled(Frozen):
    """A profile beside what the time and the device make of it."""

    profile: Profile
    latency_ms: float
    """As it was measured without a profiler."""

    roofline: Roofline
    device: Device

    @property
    def memory_share(self) -> float:
        """Achieved bandwidth, counting every byte once, over the measured one."""
        return self.roofline.memory_ms / self.latency_ms

    @property
    def compute_share(self) -> float:
        """Achieved rate over the measured peak."""
        return self.roofline.compute_ms / self.latency_ms

    @property
    def idle_share(self) -> float | None:
        """Part of the measured call in which no kernel ran; None on a CPU."""
        if self.profile.clock == "host":
            return None
        return max(1 - self.profile.busy_ms / self.latency_ms, 0.0)

    @property
    def bottleneck(self) -> Bottleneck:
        """The rule of this module."""
        idle = self.idle_share or 0.0
        most = max(idle, self.memory_share, self.compute_share)
        if most < BINDING:
            return self._latency()
        if most == idle:
            text = f"launch-bound: in {idle:.0%} of the call no kernel ran, {_kernels(self.profile)} a call"
            return Bottleneck(kind="launch", text=text)
        if most == self.memory_share:
            text = f"memory-bound: {most:.0%} of the measured bandwidth, every byte counted once"
            return Bottleneck(kind="memory", text=text)
        text = f"compute-bound: {most:.0%} of the measured {self.roofline.arithmetic} peak"
        return Bottleneck(kind="compute", text=text)

    def lines(self) -> Iterator[str]:
        """What a reader needs, the most useful first: at most seven short lines, and three of counters."""
        yield f"bottleneck: {self.bottleneck.text}"
        yield self._use()
        yield from step_lines(self.profile)
        yield from self._counted()

    def _counted(self) -> Iterator[str]:
        for kernel in self.profile.counters[:SHOWN_COUNTED]:
            if kernel.share >= MATTERS:
                facts = ", ".join(kernel.facts())
                yield f"counters of {short_name(kernel.name)} ({kernel.share:.0%}): {kernel.held_up()}; {facts}"

    def _use(self) -> str:
        """Achieved bandwidth and rate, and what is known of the whole call."""
        roof, profile = self.roofline, self.profile
        facts = [f"{roof.least_bytes / self.latency_ms / 1e6:.3g} GB/s ({self.memory_share:.0%})"]
        if roof.flops:
            rate = roof.flops / self.latency_ms / 1e9
            facts.append(f"{rate:.3g} TFLOP/s {roof.arithmetic} ({self.compute_share:.0%})")
        if self.idle_share is not None:
            facts.append(f"no kernel in {self.idle_share:.0%} of the call")
            facts.append(f"{profile.own_share:.0%} of kernel time in kernels of its own")
        if profile.busy_cores is not None:
            cores = self.device.processors
            facts.append(f"{min(profile.busy_cores, cores):.1f} of {cores} cores busy")
        return f"achieved: {', '.join(facts)}"

    def _latency(self) -> Bottleneck:
        """Neither memory nor arithmetic nor launches: the likeliest reason that can be seen."""
        profile = self.profile
        low = f"{self.memory_share:.0%} of the measured bandwidth"
        if self.roofline.flops:
            low += f" and {self.compute_share:.0%} of the {self.roofline.arithmetic} peak"
        cores, processors = profile.busy_cores, self.device.processors
        if cores is not None and processors > 1 and cores < FEW_CORES * processors:
            text = f"idle cores: {cores:.1f} of {processors} work, at {low}"
            return Bottleneck(kind="cores", text=text)
        top = profile.steps[0]
        if top.launch is not None and top.launch.spilled_bytes:
            text = f"spilling registers: {short_name(top.name)} keeps {top.launch.spilled_bytes} bytes a thread in memory, at {low}"
            return Bottleneck(kind="spills", text=text)
        counted = self._counters_of(top)
        busy = None if counted is None else self._busy(counted)
        if busy is not None:
            return busy
        if top.launch is not None and top.launch.blocks < processors:
            text = f"too few blocks: {short_name(top.name)} has {top.launch.blocks} for {processors} multiprocessors, at {low}"
            return Bottleneck(kind="blocks", text=text)
        text = "latency: " if profile.clock == "device" else ""
        text += f"neither memory nor matrix arithmetic is busy, {low}"
        occupancy = top.launch.occupancy if top.launch is not None else None
        if occupancy is not None and occupancy < LOW_OCCUPANCY:
            text += f", low occupancy {occupancy:.0%} in {short_name(top.name)}"
        if counted is not None:
            text += f"; {counted.held_up()} in {short_name(counted.name)}"
        several = sum(step.share >= MATTERS and step.name != OUTSIDE for step in profile.steps)
        if several > 1:
            text += f"; {several} {_word(profile)}s take turns, and what passes between them goes through memory"
        return Bottleneck(kind="latency", text=text)

    def _counters_of(self, step: Step) -> KernelCounters | None:
        """Of the longest step, if it is the longest for the counters too and more than half of their time."""
        first = self.profile.counters[0] if self.profile.counters else None
        if first is None or first.share < BINDING:
            return None
        return first if short_name(first.name) == short_name(step.name) else None

    def _busy(self, kernel: KernelCounters) -> Bottleneck | None:
        """What the counters show busy although the whole call uses little of it by the least that is needed."""
        name = short_name(kernel.name)
        if kernel.dram is not None and kernel.dram >= BUSY:
            text = f"memory-bound: {kernel.held_up()} in {name}"
            # Caches are emptied before each kernel that is counted, so of several the sum says nothing about the call.
            moved = kernel.dram_bytes if len(self.profile.counters) == 1 else None
            if moved is not None and moved > self.roofline.least_bytes > 0:
                text += f", and it moves {moved / self.roofline.least_bytes:.1f} times the bytes that the call needs"
            return Bottleneck(kind="memory", text=text)
        if max(kernel.tensor or 0.0, kernel.issue or 0.0) >= BUSY:
            return Bottleneck(kind="compute", text=f"compute-bound: {kernel.held_up()} in {name}")
        return None


def step_lines(profile: Profile) -> Iterator[str]:
    """The steps that matter, the longest first, each in a line; the rest is summed up in the last of them."""
    telling = [step for step in profile.steps if step.share >= MATTERS] or profile.steps[:1]
    room = SHOWN if len(telling) <= SHOWN else SHOWN - 1
    shown = telling[:room]
    for step in shown:
        yield f"- {step.share:.0%} {_step(step)}"
    rest = 1 - sum(step.share for step in shown)
    if len(shown) < SHOWN and rest >= 0.01:
        yield f"- {rest:.0%} everything else"


def short_name(name: str) -> str:
    """A kernel's name without its result, template arguments and parameters."""
    plain, depth = "", 0
    for character in name.removeprefix("void ").replace("(anonymous namespace)::", ""):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            break
        if depth == 0 and character != ">":
            plain += character
    plain = plain.strip() or name
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 1]}…"


def _step(step: Step) -> str:
    shown = short_name(step.name)
    text = f"{step.operator} ({shown})" if step.operator else shown
    if step.count > 1.5:
        text += f", {step.count:.0f} times"
    if step.launch is None:
        return text
    launch = step.launch
    facts = [f"{launch.blocks} blocks of {launch.threads} threads", f"{launch.registers} registers"]
    if launch.spilled_bytes:
        facts.append(f"{launch.spilled_bytes} bytes spilled")
    if launch.shared_bytes:
        facts.append(f"{launch.shared_bytes / 1024:.3g} KB shared")
    if launch.occupancy is not None:
        facts.append(f"occupancy {launch.occupancy:.0%}")
    return f"{text}: {', '.join(facts)}"


def _kernels(profile: Profile) -> str:
    return f"{profile.count:.0f} kernel{'' if round(profile.count) == 1 else 's'}"


def _word(profile: Profile) -> str:
    return "kernel" if profile.clock == "device" else "operator"
