"""A profile in English: what limits a program, what it achieves, and which steps take the time."""

from __future__ import annotations

from collections.abc import Iterator

from stark.core.bottleneck import Bottleneck, Profiled, kernel_name
from stark.core.device import NEAR
from stark.core.profile import OUTSIDE, Profile, Step
from stark.explain.counters import facts, limiter
from stark.explain.numbers import counted

MATTERS = 0.05
"""A step is shown if it takes at least this share of the time. The longest step is shown in any case."""

LOW_OCCUPANCY = 0.25
OVER = "over 100%"
SHOWN, SHOWN_COUNTED = 5, 3
"""Maximum number of steps, and of kernels with counters, that are shown."""


def profile_lines(profiled: Profiled) -> Iterator[str]:
    """A profile in at most eight short lines, the most useful first, and at most three more lines with counters."""
    yield f"bottleneck: {bottleneck_text(profiled)}"
    yield _achieved(profiled)
    yield from step_lines(profiled.profile)
    for kernel in profiled.profile.counters[:SHOWN_COUNTED]:
        if kernel.share >= MATTERS:
            name = f"{kernel_name(kernel.name)} ({kernel.share:.0%})"
            yield f"counters of {name}: {limiter(kernel)}; {', '.join(facts(kernel))}"


def bottleneck_text(profiled: Profiled) -> str:
    """What limits the program, in one line."""
    unsure = "unsure, since the time is too noisy; probably " if profiled.noisy else ""
    return unsure + _limiting(profiled)


def _limiting(profiled: Profiled) -> str:
    found, use = profiled.bottleneck, _use(profiled)
    profile, processors = profiled.profile, profiled.device.processors
    name, launch = kernel_name(profile.steps[0].name), profile.steps[0].launch
    if found.kind == "launch":
        kernels = counted(round(profile.count), "kernel")
        if profiled.host_ms is not None and profiled.host_ms > profiled.latency_ms:
            host = f"the host takes {profiled.host_ms:.3g} ms to launch a call, {kernels}"
            return f"launch-bound: {host}, and the device {profile.busy_ms:.3g} ms to run it"
        return f"launch-bound: in {found.share:.0%} of the call no kernel ran, {kernels} per call"
    if found.kind in ("memory", "compute"):
        return f"{found.kind}-bound: {_limit(profiled, found)}"
    if found.kind == "cores":
        return f"idle cores: {profile.busy_cores:.1f} of {processors} work, at {use}"
    if found.kind == "spills" and launch is not None:
        spilled = f"{name} keeps {launch.spilled_bytes} bytes per thread in memory"
        return f"spilling registers: {spilled}, at {use}"
    if found.kind == "blocks" and launch is not None:
        return (
            f"too few blocks: {name} has {launch.blocks} for {processors} multiprocessors, at {use}"
        )
    device = profile.clock == "device"
    text = f"{'latency: ' if device else ''}neither memory nor matrix arithmetic is busy, {use}"
    if launch is not None and 0 < (launch.occupancy or 0) < LOW_OCCUPANCY:
        text += f", low occupancy {launch.occupancy:.0%} in {name}"
    if found.counters is not None:
        text += f"; {limiter(found.counters)} in {kernel_name(found.counters.name)}"
    telling = [s for s in profile.steps if s.share >= MATTERS and s.name != OUTSIDE]
    several = round(sum(step.count for step in telling))
    if several > 1:
        steps = f"{several} {'kernels' if device else 'operators'}"
        text += f"; {steps} run one after the other and pass their data through memory"
    return text


def step_lines(profile: Profile) -> Iterator[str]:
    """The steps that matter, the longest first, and a line for the rest."""
    telling = [step for step in profile.steps if step.share >= MATTERS] or profile.steps[:1]
    room = SHOWN if len(telling) <= SHOWN else SHOWN - 1
    shown = telling[:room]
    for step in shown:
        yield f"- {step.share:.0%} {step_text(step)}"
    rest = 1 - sum(step.share for step in shown)
    if rest >= 0.01:
        yield f"- {rest:.0%} everything else"


def _limit(profiled: Profiled, found: Bottleneck) -> str:
    """How busy memory or arithmetic is, by the longest kernel's counters if `found` has them, else by the roofline."""
    kernel, roof = found.counters, profiled.roofline
    memory = found.kind == "memory"
    if kernel is None:
        of = "bandwidth, every byte counted once" if memory else f"{profiled.arithmetic} peak"
        cause = "its data stays in a cache" if memory else "it uses lower-precision arithmetic"
        share = _share(found.share or 0.0)
        doubt = f"; {cause}, or a measurement is off" if share == OVER else ""
        return f"{share} of the measured {of}{doubt}"
    text = f"{limiter(kernel)} in {kernel_name(kernel.name)}"
    # Caches are emptied before each kernel with counters, so a sum over several says nothing about the call.
    moved = kernel.dram_bytes if len(profiled.profile.counters) == 1 else None
    if memory and moved is not None and moved > roof.least_bytes > 0:
        text += f", and it moves {moved / roof.least_bytes:.1f} times the bytes that the call needs"
    return text


def _share(share: float) -> str:
    """A share of a measured peak. One far above 1 says only that the peak does not bound this program."""
    return OVER if share > 1 + NEAR else f"{share:.0%}"


def _use(profiled: Profiled) -> str:
    """How much of the bandwidth and of the arithmetic the whole call uses."""
    text = f"{_share(profiled.memory_share)} of the measured bandwidth"
    if profiled.roofline.flops:
        text += f" and {_share(profiled.compute_share)} of the {profiled.arithmetic} peak"
    return text


def _achieved(profiled: Profiled) -> str:
    """Achieved bandwidth and arithmetic rate, and how busy the GPU or the cores are during the call."""
    roof, profile = profiled.roofline, profiled.profile
    bandwidth = roof.least_bytes / profiled.latency_ms / 1e6
    parts = [f"{bandwidth:.3g} GB/s ({_share(profiled.memory_share)})"]
    if roof.flops:
        rate = roof.flops / profiled.latency_ms / 1e9
        parts.append(f"{rate:.3g} TFLOP/s {profiled.arithmetic} ({_share(profiled.compute_share)})")
    if profiled.idle_share is not None:
        parts.append(f"no kernel in {profiled.idle_share:.0%} of the call")
        parts.append(f"{profile.own_share:.0%} of kernel time in custom kernels")
    if profile.busy_cores is not None:
        cores = profiled.device.processors
        parts.append(f"{min(profile.busy_cores, cores):.1f} of {cores} cores busy")
    return f"achieved: {', '.join(parts)}"


def step_text(step: Step) -> str:
    """One step in a line: its name, how often it runs, and how its kernel is launched."""
    shown = kernel_name(step.name)
    text = f"{step.operator} ({shown})" if step.operator else shown
    if step.count > 1.5:
        text += f", {step.count:.0f} times"
    if step.launch is None:
        return text
    launch = step.launch
    parts = [f"{launch.blocks} blocks of {launch.threads} threads", f"{launch.registers} registers"]
    if launch.spilled_bytes:
        parts.append(f"{launch.spilled_bytes} bytes spilled")
    if launch.shared_bytes:
        parts.append(f"{launch.shared_bytes / 1024:.3g} KB shared")
    if launch.occupancy:  # the profiler reports 0 for an unknown occupancy
        parts.append(f"occupancy {launch.occupancy:.0%}")
    return f"{text}: {', '.join(parts)}"
