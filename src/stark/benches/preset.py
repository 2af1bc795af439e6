"""Benches with fixed settings: the published protocol of the STARK paper."""

from __future__ import annotations

from dataclasses import dataclass

from stark.core.run import Start


@dataclass(frozen=True)
class Preset:
    """The settings of a bench over KernelBench; the model and the device are the user's."""

    strategies: tuple[str, ...]
    levels: tuple[int, ...]
    problems: tuple[int, ...] | None
    """Problem numbers, the same in each level; None: all."""

    attempts: int
    """Of each run."""

    parallel: int
    """Attempts in flight in each run."""

    start: Start
    seeds: int


def paper() -> Preset:
    """The protocol of arXiv 2510.16996, as published summaries describe it.

    30 attempts per problem on levels 1 to 3, one after the other, starting from the reference; the method, its two
    baselines and its two ablations. Its metrics are success, fast_1 against eager, and the mean speedup against eager,
    `torch.compile` and its max-autotune mode; the table "Mean speedups" of the report has them.

    What differs: the paper used a subset of KernelBench that the summaries do not list, and this is all of it. It used
    Claude Sonnet 4 on an A100 (40 GB), and a bench uses your model and device. The number of runs per problem is not
    stated; this makes one.
    """
    return Preset(
        strategies=("stark", "sampling", "reflexion", "search-only", "team-only"),
        levels=(1, 2, 3),
        problems=None,
        attempts=30,
        parallel=1,
        start="reference",
        seeds=1,
    )
