"""How far the fitted landscapes are from the recorded runs: the same figures of both, side by side.

A simulated run has the recorded ones' shape: the paper's policy, ten attempts, three in flight. A
dozen attempts a recording is little, so what agrees is the size of things and no more. Failures
are left out: the landscapes have published rates (`landscapes.py` says why).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from lab.contestants import CONTESTANTS, PAPER
from lab.landscapes import world_of
from lab.runs import grown
from stark.core.node import ROOT, Node
from stark.recording import read_recording

RECORDINGS: dict[str, tuple[str, ...]] = {
    "recorded": ("gated_causal_conv.triton", "layernorm_gelu_residual.triton"),
    "noisy": ("gated_causal_conv.cpp", "layernorm_gelu_residual.cpp"),
}
"""By landscape, the recordings in `examples/recordings` that it is fitted to."""

_FOLDER = Path(__file__).resolve().parents[2] / "examples" / "recordings"


@dataclass(frozen=True)
class Figures:
    """What a set of runs shows, as measured. Gains are natural logarithms."""

    starts: float
    """The mean of first versions' share of the gain at the roofline."""

    faster: float
    """The share of edits of a working kernel that were measured as faster than it."""

    rise: float
    """The mean gain of those."""

    fall: float
    """The mean loss of the others."""

    interval: float
    """The median distance from a measured gain to its interval's lower end."""

    edits: int
    """How many edits this is of."""


def recorded(landscape: str) -> Figures:
    """Of the recordings that this landscape is fitted to."""
    runs = []
    for name in RECORDINGS[landscape]:
        nodes = read_recording(_FOLDER / f"{name}.json").nodes
        runs.append((median(_ceilings(nodes)), nodes))
    return _figures(runs)


def simulated(landscape: str, runs: int = 500) -> Figures:
    """Of as many simulated runs on it."""
    policy = CONTESTANTS[PAPER]()
    worlds = [(seed, world_of(landscape, seed)) for seed in range(runs)]
    return _figures(
        [(world.ceiling, grown(world, policy, 10, 3, seed).nodes) for seed, world in worlds]
    )


def _figures(runs: Sequence[tuple[float, Sequence[Node]]]) -> Figures:
    starts, steps, intervals = [], [], []
    for ceiling, nodes in runs:
        gains = {
            node.id: math.log(node.speedup_vs_eager) for node in nodes if node.speedup_vs_eager
        }
        for node in nodes:
            if node.id not in gains:
                continue
            intervals.append(gains[node.id] - math.log(node.assured_speedup or math.nan))
            if node.parent == ROOT:
                starts.append(gains[node.id] / ceiling)
            elif node.parent in gains:
                steps.append(gains[node.id] - gains[node.parent])
    rises = [step for step in steps if step > 0]
    falls = [-step for step in steps if step <= 0]
    return Figures(
        starts=fmean(starts),
        faster=len(rises) / len(steps),
        rise=fmean(rises),
        fall=fmean(falls),
        interval=median(intervals),
        edits=len(steps),
    )


def _ceilings(nodes: Sequence[Node]) -> Iterator[float]:
    """The gain at the roofline, as each working attempt's evaluation has it."""
    for node in nodes:
        evaluation = node.evaluation
        if evaluation.status == "correct":
            yield math.log(evaluation.speedup_vs().ratio / evaluation.roofline_fraction)
