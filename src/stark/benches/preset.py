"""The published protocol of the STARK paper, as options of a bench over KernelBench."""

from __future__ import annotations

PAPER_LEVELS = (1, 2, 3)
PAPER_STRATEGIES = ("stark", "sampling", "reflexion", "search-only", "team-only")
"""The paper's method, its two baselines and its two ablations."""

PAPER_OPTIONS = {"attempts": 30, "parallel": 1, "tune_seconds": 0.0}
"""The protocol of arXiv 2510.16996, as published summaries describe it: 30 attempts per problem, one after the other.

The paper's metrics are success, fast_1, and the mean speedups against eager, against `torch.compile`, and against
`torch.compile` in max-autotune mode. The report's table "Mean speedups" has all of these.

A bench with this preset differs from the paper in three ways. The paper used a subset of KernelBench that the summaries
do not list; the preset uses all problems of the three levels. The paper used Claude Sonnet 4 on an A100 (40 GB); a
bench uses your model and device. The summaries do not state the number of runs per problem; a bench makes one run
per problem and strategy by default.
"""
