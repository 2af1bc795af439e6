"""A profile in English: what limits a program, what it achieves, and which steps take the time."""

from __future__ import annotations

from collections.abc import Iterator

from stark.core.bottleneck import BINDING, Bottleneck, Profiled, kernel_name
from stark.core.device import NEAR
from stark.core.profile import OUTSIDE, KernelCounters, Profile, Step
from stark.explain.counters import SATURATED, facts, limiter
from stark.explain.numbers import counted, listed

MATTERS = 0.05
"""A step is shown if it takes at least this share of the time. The longest step is shown in any case."""

PARTLY = 0.2
"""A resource that takes at least this share of the call is called a part of the bottleneck."""

LOW_OCCUPANCY = 0.25
OVER = "over 100%"
SHOWN, SHOWN_COUNTED = 5, 3
"""Maximum number of steps, and of kernels with counters, that are shown."""


def profile_lines(profiled: Profiled) -> Iterator[str]:
    """A profile in at most nine lines, the most useful first, and at most three more lines with counters."""
    yield f"bottleneck: {bottleneck_text(profiled)}"
    yield _achieved(profiled)
    yield from step_lines(profiled.profile)
    longest = profiled.profile.steps[0]
    if _is_compiled(longest) and not _streams(profiled):
        yield (
            f"the inside of {longest.name} was not measured: to learn more, evaluate variants that differ in one part, or, "
            "if it is not one fused loop, export its parts as functions that forward calls in turn"
        )
    for kernel in profiled.profile.counters[:SHOWN_COUNTED]:
        if kernel.share >= MATTERS:
            name = f"{kernel_name(kernel.name)} ({kernel.share:.0%})"
            yield f"counters of {name}: {limiter(kernel)}; {', '.join(facts(kernel))}"


def bottleneck_text(profiled: Profiled) -> str:
    """What limits the program, in one line."""
    unsure = "unsure, since the time is too noisy; probably " if profiled.noisy else ""
    return unsure + _limiting(profiled)


def _limiting(profiled: Profiled) -> str:
    """The busiest resource and the likeliest other reason, the larger part first; one of them alone if it is nearly all."""
    (kind, share), found = profiled.busiest, profiled.likeliest
    bound, (reason, *details) = _bound(profiled), _reason(profiled, found)
    if share >= SATURATED:
        return bound
    if share < PARTLY or found.kind == kind:
        return "; ".join([f"{reason}, at {_use(profiled)}", *details])
    if share >= BINDING:
        return f"{bound}; also {reason}"
    return "; ".join([reason, bound, *details])


def _bound(profiled: Profiled) -> str:
    """How much of the call the busiest resource takes."""
    (kind, share), profile = profiled.busiest, profiled.profile
    bound = f"{_how_much(share)}{kind}-bound"
    if kind == "launch":
        kernels = counted(round(profile.count), "kernel")
        if profiled.host_ms is not None and profiled.host_ms > profiled.latency_ms:
            host = f"the host takes {profiled.host_ms:.3g} ms to launch a call, {kernels}"
            return f"{bound}: {host}, and the device {profile.busy_ms:.3g} ms to run it"
        return f"{bound}: in {share:.0%} of the call no kernel ran, {kernels} per call"
    memory = kind == "memory"
    of = "bandwidth, every byte counted once" if memory else f"{profiled.arithmetic} peak"
    cause = "its data stays in a cache" if memory else "it uses lower-precision arithmetic"
    shown = _share(share, profiled)
    doubt = f"; {cause}, or a measurement is off" if shown == OVER else ""
    return f"{bound}: {shown} of the measured {of}{doubt}"


def _reason(profiled: Profiled, found: Bottleneck) -> Iterator[str]:
    """The likeliest reason for the time that the busiest resource does not take, then details."""
    if profiled.profile.clock == "host":
        yield from _reason_on_cpu(profiled, found)
        return
    first, processors = profiled.profile.steps[0], profiled.device.processors
    name, launch = kernel_name(first.name), first.launch
    if found.kind in ("memory", "compute") and found.counters is not None:
        yield _counted(profiled, found.kind, found.counters)
        return
    if found.kind == "spills" and launch is not None:
        yield f"spilling registers: {name} keeps {launch.spilled_bytes} bytes per thread in memory"
        return
    if found.kind == "blocks" and launch is not None:
        yield f"too few blocks: {name} has {launch.blocks} for {processors} multiprocessors"
        return
    yield f"latency in {name}, {first.share:.0%} of the kernels' time"
    if launch is not None and 0 < (launch.occupancy or 0) < LOW_OCCUPANCY:
        yield f"its occupancy is low, {launch.occupancy:.0%}"
    if found.counters is not None:
        yield limiter(found.counters)
    else:
        yield "what it waits for was not measured: Nsight Compute's counters would tell"
    yield from _in_sequence(profiled.profile)


def _reason_on_cpu(profiled: Profiled, found: Bottleneck) -> Iterator[str]:
    """What the cores do: nothing, mapping new memory, or what is neither the least traffic nor matrix products."""
    profile, first = profiled.profile, profiled.profile.steps[0]
    cores, processors = profile.busy_cores, profiled.device.processors
    busy = "" if cores is None else f": {min(cores, processors):.1f} of {processors} busy"
    if found.kind == "cores":
        yield f"idle cores{busy}"
    elif found.kind == "pages":
        system = f"{profile.system_share:.0%} of the processor time in the operating system"
        yield f"new memory: {profile.page_faults:,.0f} page faults in a call, {system}"
    else:
        yield f"time in the cores{busy}"
    yield f"{first.share:.0%} of the time {_within(first)}"
    if profile.scalar_calls and _is_compiled(first):
        yield f"somewhere the compiled code calls {listed(profile.scalar_calls)} for one number at a time"
    yield from _in_sequence(profile)
    if found.kind == "latency":
        several = (profiled.device.threads or processors) > 1
        yield (
            "what it goes to was not measured: scalar arithmetic, chains of dependent operations, or waiting for data (cache "
            f"misses){' or other threads' if several else ''}"
        )


def _within(step: Step) -> str:
    """Where time is spent; follows `of the time`."""
    return step.name if step.name == OUTSIDE else f"in {step_text(step)}"


def _in_sequence(profile: Profile) -> Iterator[str]:
    """How many steps pass their data through memory, if there are several."""
    telling = [s for s in profile.steps if s.share >= MATTERS and s.name != OUTSIDE]
    several = round(sum(step.count for step in telling))
    if several > 1:
        steps = "steps" if any(map(_is_compiled, telling)) else "operators"
        steps = "kernels" if profile.clock == "device" else steps
        yield f"{several} {steps} run one after the other and pass their data through memory"


def _counted(profiled: Profiled, kind: str, kernel: KernelCounters) -> str:
    """How busy memory or arithmetic is by the longest kernel's counters."""
    shares = (kernel.dram,) if kind == "memory" else (kernel.tensor, kernel.issue)
    much = _how_much(max(share or 0.0 for share in shares))
    text = f"{much}{kind}-bound: {limiter(kernel)} in {kernel_name(kernel.name)}"
    # Caches are emptied before each kernel with counters, so a sum over several says nothing about the call.
    moved = kernel.dram_bytes if len(profiled.profile.counters) == 1 else None
    least = profiled.roofline.least_bytes
    if kind == "memory" and moved is not None and moved > least > 0:
        text += f", and it moves {moved / least:.1f} times the bytes that the call needs"
    return text


def _how_much(share: float) -> str:
    """An adverb for a share, so that words change as gradually as figures do."""
    if share >= SATURATED:
        return ""
    return "mostly " if share >= BINDING else "partly "


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


def _share(share: float, profiled: Profiled) -> str:
    """A share of a measured peak. One far above 1 says only that the peak does not bound this program."""
    if not profiled.roofline.is_confirmed:
        return "an unknown share"
    return OVER if share > 1 + NEAR else f"{share:.0%}"


def _use(profiled: Profiled) -> str:
    """How much of the bandwidth and of the arithmetic the whole call uses."""
    text = f"{_share(profiled.memory_share, profiled)} of the measured bandwidth"
    if profiled.roofline.flops:
        text += f" and {_share(profiled.compute_share, profiled)} of the {profiled.arithmetic} peak"
    return text


def _achieved(profiled: Profiled) -> str:
    """Achieved bandwidth and arithmetic rate, and how busy the GPU or the cores are during the call."""
    roof, profile = profiled.roofline, profiled.profile
    bandwidth = roof.least_bytes / profiled.latency_ms / 1e6
    parts = [f"{bandwidth:.3g} GB/s ({_share(profiled.memory_share, profiled)})"]
    if roof.flops:
        rate = roof.flops / profiled.latency_ms / 1e9
        parts.append(
            f"{rate:.3g} TFLOP/s {profiled.arithmetic} ({_share(profiled.compute_share, profiled)})"
        )
    if profiled.idle_share is not None:
        parts.append(f"no kernel in {profiled.idle_share:.0%} of the call")
        parts.append(f"{profile.own_share:.0%} of kernel time in custom kernels")
    if profile.busy_cores is not None:
        cores = profiled.device.processors
        parts.append(f"{min(profile.busy_cores, cores):.1f} of {counted(cores, 'core')} busy")
    if profile.alone and not profiled.noisy and profiled.likeliest.kind != "cores":
        threads = profiled.device.threads or profiled.device.processors
        parts.append(f"{threads} threads are {profile.alone:.1f} times as fast as one")
    if (profile.page_faults or 0) >= 1:
        parts.append(f"{profile.page_faults:,.0f} page faults in a call")
    return f"achieved: {', '.join(parts)}"


def _streams(profiled: Profiled) -> bool:
    """Whether memory takes most of the call, so that the parts of a kernel matter less than its bytes."""
    kind, share = profiled.busiest
    return kind == "memory" and share >= BINDING


def _is_compiled(step: Step) -> bool:
    """Whether it is a compiled function of a program on a CPU."""
    return step.own and step.launch is None and step.name != OUTSIDE


def step_text(step: Step) -> str:
    """One step in a line: its name, how often it runs, and how its kernel is launched."""
    shown = kernel_name(step.name)
    text = f"{step.operator} ({shown})" if step.operator else shown
    if _is_compiled(step):
        text += " (compiled code)"
    if step.count > 1.5:
        text += f", {step.count:.0f} times"
    if step.launch is None:
        return text
    launch = step.launch
    blocks = "block" if launch.blocks == 1 else "blocks"
    parts = [
        f"{launch.blocks} {blocks} of {launch.threads} threads",
        f"{launch.registers} registers",
    ]
    if launch.spilled_bytes:
        parts.append(f"{launch.spilled_bytes} bytes spilled")
    if launch.shared_bytes:
        parts.append(f"{launch.shared_bytes / 1024:.3g} KB shared")
    if launch.occupancy:  # the profiler reports 0 for an unknown occupancy
        parts.append(f"occupancy {launch.occupancy:.0%}")
    return f"{text}: {', '.join(parts)}"
