"""Times every module call of a run, as the median of several runs, without what the measurement itself adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import nn

from stark.regions.clocks import HostClock, wall_s
from stark.regions.watching import watched
from stark.regions.workload import Step, seeded

FEWEST, MOST = 3, 10
"""Runs that are timed in each way."""

ENOUGH_S = 3.0
"""More runs than `FEWEST` are only made within this time."""

EMPTY_CALLS = 100
"""Calls of an empty module, to measure what watching costs the host."""


@dataclass
class TimedCall:
    """A module call, and the calls inside it."""

    path: str
    own_s: float
    """Median time outside of the calls inside it."""

    children: list[TimedCall] = field(default_factory=list)

    @property
    def time_s(self) -> float:
        """The sum of the medians, so that parts add up also where the machine is noisy."""
        return self.own_s + sum(child.time_s for child in self.children)


@dataclass(frozen=True)
class TimedStep:
    """One part of a run."""

    plain_s: float
    """Median time without watching."""

    roots: list[TimedCall]
    outside_s: float
    """Median time outside of all module calls."""

    calls: int
    runs: int
    watching_s: float
    """What watching adds to each call; already subtracted from the times."""

    steady: bool
    """Whether every run made the same calls."""


class Times:
    """Watches one run and notes when each call begins and ends."""

    def __init__(self, clock: HostClock) -> None:
        self._mark = clock.mark
        self.paths: list[str] = []
        self.parents: list[int] = []
        self.begun: list[Any] = []
        self.ended: list[Any] = []
        self._open = [-1]

    def enter(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A call begins."""
        self.paths.append(path)
        self.parents.append(self._open[-1])
        self._open.append(len(self.ended))
        self.ended.append(None)
        self.begun.append(self._mark())

    def leave(self, result: Any) -> None:
        """The innermost call ends."""
        now = self._mark()
        self.ended[self._open.pop()] = now


def timed(
    step: Step, paths: Mapping[int, str], clock: HostClock, device: torch.device
) -> TimedStep:
    """Time a step: runs without and with watching, in turns.

    What watching adds is the difference between the two kinds of runs, but no more than it costs the host: a GPU hides
    that cost where the host is ahead, and the difference alone is too noisy for models with few calls.
    """
    plain: list[float] = []
    watching: list[float] = []
    logs: list[tuple[Times, list[float]]] = []
    while len(plain) < FEWEST or (len(plain) < MOST and sum(plain) + sum(watching) < ENOUGH_S):
        with seeded(device):
            plain.append(wall_s(step.prepare(), clock))
        log, run = Times(clock), step.prepare()
        with seeded(device), watched(paths, log):
            watching.append(wall_s(run, clock))
        logs.append((log, _own_times(log, clock, watching[-1])))
    usual, count = Counter((tuple(log.paths), tuple(log.parents)) for log, _ in logs).most_common(
        1
    )[0]
    alike = [times for log, times in logs if (tuple(log.paths), tuple(log.parents)) == usual]
    outside_s, *own = [median(each) for each in zip(*alike, strict=True)]
    added = median(ours - base for ours, base in zip(watching, plain, strict=True))
    per_call = min(max(added / max(len(own), 1), 0.0), _host_cost_s(clock))
    paths_called, parents = usual
    children = Counter(parents)
    roots: list[TimedCall] = []
    calls = [
        TimedCall(path, max(own_s - per_call * children[place], 0.0))
        for place, (path, own_s) in enumerate(zip(paths_called, own, strict=True))
    ]
    for call, parent in zip(calls, parents, strict=True):
        (calls[parent].children if parent >= 0 else roots).append(call)
    return TimedStep(
        plain_s=median(plain),
        roots=roots,
        outside_s=max(outside_s - per_call * len(roots), 0.0),
        calls=len(calls),
        runs=len(plain),
        watching_s=per_call,
        steady=count == len(logs),
    )


def _host_cost_s(clock: HostClock) -> float:
    """Seconds that watching one call costs the host."""
    empty = nn.Identity()

    def run() -> None:
        for _ in range(EMPTY_CALLS):
            empty(None)

    plain, watching = [], []
    for _ in range(FEWEST):
        plain.append(wall_s(run, clock))
        with watched({id(empty): ""}, Times(clock)):
            watching.append(wall_s(run, clock))
    return max(min(watching) - min(plain), 0.0) / EMPTY_CALLS


def _own_times(log: Times, clock: HostClock, whole_s: float) -> list[float]:
    """The time outside of all calls, then that of each call outside of the calls inside it."""
    spans = [clock.between(begin, end) for begin, end in zip(log.begun, log.ended, strict=True)]
    own = [whole_s, *spans]
    for span, parent in zip(spans, log.parents, strict=True):
        own[parent + 1] -= span
    return own
