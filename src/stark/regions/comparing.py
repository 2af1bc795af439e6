"""Times a whole model with and without kernels in place of its regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import nn

from stark.capturing.calls.repeating import unchanged
from stark.core.errors import UsageError
from stark.core.measurement import Measurement, speedup
from stark.deploy.apply import apply
from stark.regions.clocks import HostClock, clock_of, wall_s
from stark.regions.results import Comparison
from stark.regions.workload import device_of, seeded

ROUNDS = 15
"""Times of both versions that are taken side by side; their ratios give the interval."""


def compare(
    model: nn.Module,
    run: Callable[[], object],
    kernels: Sequence[Path],
    rounds: int = ROUNDS,
) -> Comparison:
    """Time the model as it is and with all kernels applied, in turns. The kernels are removed at the end.

    Raises what `apply` raises for a kernel that fits no module.
    """
    if not kernels:
        raise UsageError("there is no kernel to apply, so there is nothing to compare")
    device = device_of(model)
    clock = clock_of(device)
    before: list[float] = []
    after: list[float] = []
    reports: list[str] = []
    with unchanged(model, trains=model.training):
        for _ in range(rounds):
            before.append(_timed_ms(run, clock, device))
            with ExitStack() as stack:
                applied = [stack.enter_context(apply(model, kernel)) for kernel in kernels]
                after.append(_timed_ms(run, clock, device))
                reports = [str(each.report()) for each in applied]
    pair = [measurement(samples) for samples in (before, after)]
    return Comparison(
        before_ms=pair[0].latency_ms,
        after_ms=pair[1].latency_ms,
        speedup=speedup("the model as it was", *pair),
        reports=tuple(reports),
    )


def _timed_ms(run: Callable[[], object], clock: HostClock, device: torch.device) -> float:
    """The second of two runs: the first one after a change may load or build something."""
    for _ in range(2):
        with seeded(device):
            taken_s = wall_s(run, clock)
    return taken_s * 1e3


def measurement(samples_ms: list[float]) -> Measurement:
    """Milliseconds of whole runs as a measurement, so that two can be compared in pairs."""
    return Measurement(
        samples_ms=tuple(samples_ms),
        calls_per_sample=1,
        warmups=1,
        clock="judge_wall",
        cache="warm",
    )
