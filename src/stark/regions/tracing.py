"""Puts the passes over a run together: the tree of calls with times and work, which `regions.cut` takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from stark.capturing.structure import structure_of
from stark.core.device import Device
from stark.evaluator.judge.problem.roofline import traffic
from stark.regions.counting import Counted, Counting
from stark.regions.cut import Call, walk
from stark.regions.timing import TimedCall
from stark.regions.watching import watched
from stark.regions.workload import Step, seeded


def counted(step: Step, paths: Mapping[int, str], device: torch.device) -> list[Counted]:
    """Run a step once and count the work of each call."""
    counting = Counting("cuda" if device.type == "cuda" else "cpu")
    run = step.prepare()
    with seeded(device), watched(paths, counting), counting:
        run()
    return counting.roots


@dataclass
class Trace:
    """The calls of all steps."""

    roots: list[Call]
    work: dict[int, Counted]
    """By id of a call."""

    device: Device
    """With the peaks that the run itself reaches, where those measured are lower."""

    unseen: list[str]
    """Paths of modules whose calls differ between the passes, so that only their whole time is known."""


def traced(
    steps: Sequence[tuple[Step, Sequence[TimedCall], Sequence[Counted]]], device: Device
) -> Trace:
    """Match the timed calls of each step with the counted ones."""
    trace = Trace([], {}, device, [])
    structures = cache(structure_of)

    def matched(time: TimedCall, work: Counted, weight: int) -> Call:
        call = Call(
            group=(structures(work.module), work.form.key),
            path=work.path,
            time_s=time.time_s,
            floor_s=0.0,
            operators=len(work.operators),
            weight=weight,
            has_parts=next(work.module.children(), None) is not None,
        )
        trace.work[id(call)] = work
        if [c.path for c in time.children] == [c.path for c in work.children]:
            pairs = zip(time.children, work.children, strict=True)
            call.children = [matched(t, w, weight) for t, w in pairs]
        else:
            trace.unseen.append(work.path)
        return call

    for step, times, works in steps:
        for time, work in _pairs(times, works, trace.unseen):
            trace.roots.append(matched(time, work, step.weight))
    calls = list(walk(trace.roots))
    trace.device = _corrected(device, [(call, trace.work[id(call)]) for call in calls])
    for call in calls:
        call.floor_s = floor_s(trace.work[id(call)], trace.device)
    return trace


def _corrected(device: Device, calls: Sequence[tuple[Call, Counted]]) -> Device:
    """The device with peaks that are at least what the calls reach: other programs may slow a measurement down."""
    peaks = dict(device.peak_tflop_s)
    for call, work in calls:
        for kind, flops in work.flops.items():
            if call.time_s > 0:
                peaks[kind] = max(peaks.get(kind, 0.0), flops / call.time_s / 1e12)
    return device.model_copy(update={"peak_tflop_s": peaks})


def _pairs(
    times: Sequence[TimedCall], works: Sequence[Counted], unseen: list[str]
) -> Iterator[tuple[TimedCall, Counted]]:
    """The outermost calls that both passes saw, as far as they agree."""
    for time, work in zip(times, works, strict=False):
        if time.path != work.path:
            unseen.append(work.path)
            return
        yield time, work


def floor_s(work: Counted, device: Device) -> float:
    """The least seconds for the work of one call: the roofline in the arithmetic that the call uses, or one launch."""
    memory_ms, _ = traffic(work.least_bytes, device)
    compute_s = sum(flops / device.peak_tflop_s[kind] / 1e12 for kind, flops in work.flops.items())
    return max(memory_ms / 1e3, compute_s, device.launch_ms / 1e3)
