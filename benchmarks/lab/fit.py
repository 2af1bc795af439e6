"""Compares the fitted landscapes with the recorded runs that they are fitted to.

The simulated runs are made like the recorded ones: the paper's policy, ten attempts, three in flight. With a
dozen attempts per recording, only orders of magnitude can agree. Failures are left out: the landscapes use
published failure rates (see `landscapes.py`).
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
from stark.core.standing import vs_eager
from stark.recorded import read_recording

_ROOT = Path(__file__).resolve().parents[2]
_DEMO, _EXAMPLES = _ROOT / "src" / "stark" / "demo", _ROOT / "examples" / "recordings"

RECORDINGS: dict[str, tuple[Path, ...]] = {
    "recorded": (_DEMO / "triton.json.gz", _EXAMPLES / "layernorm_gelu_residual.triton.json"),
    "noisy": (_DEMO / "cpp.json.gz", _EXAMPLES / "layernorm_gelu_residual.cpp.json"),
}
"""By landscape, the recordings that it is fitted to."""


@dataclass(frozen=True)
class Figures:
    """Statistics of a set of runs, as measured. Gains are natural logarithms."""

    starts: float
    """Mean gain of first versions, as a share of the gain at the roofline."""

    faster: float
    """Share of edits of a correct kernel that were measured as faster than it."""

    rise: float
    """Mean gain of the faster edits."""

    fall: float
    """Mean loss of the slower edits."""

    interval: float
    """Median distance from a measured gain to the lower end of its interval."""

    edits: int
    """Number of edits of correct kernels."""


def recorded(landscape: str) -> Figures:
    """The figures of the recordings that this landscape is fitted to."""
    runs = []
    for path in RECORDINGS[landscape]:
        nodes = read_recording(path).nodes
        runs.append((median(_ceilings(nodes)), nodes))
    return _figures(runs)


def simulated(landscape: str, runs: int = 500) -> Figures:
    """The figures of this many simulated runs on it."""
    policy = CONTESTANTS[PAPER]()
    worlds = [(seed, world_of(landscape, seed)) for seed in range(runs)]
    return _figures(
        [(world.ceiling, grown(world, policy, 10, 3, seed).nodes) for seed, world in worlds]
    )


def _figures(runs: Sequence[tuple[float, Sequence[Node]]]) -> Figures:
    starts, steps, intervals = [], [], []
    for ceiling, nodes in runs:
        speedups = {node.id: vs_eager(node.evaluation) for node in nodes}
        gains = {id: math.log(speedup.ratio) for id, speedup in speedups.items() if speedup}
        for node in nodes:
            speedup = speedups[node.id]
            if speedup is None:
                continue
            intervals.append(gains[node.id] - math.log(speedup.low))
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
    """The gain at the roofline according to each correct attempt's evaluation."""
    for node in nodes:
        evaluation = node.evaluation
        share = evaluation.roofline_fraction if evaluation.status == "correct" else None
        if evaluation.status == "correct" and share is not None:
            yield math.log(evaluation.speedup_vs().ratio / share)
