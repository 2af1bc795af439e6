"""The shipped recordings as a store with a bench, for tests and pictures of the page."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from stark.core.bench import Bench, Cell
from stark.core.run import Run
from stark.core.usage import Budget
from stark.recorded import keep, read_recording
from stark.store import Store

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"

RMSNORM, DEPTHWISE = "36-rmsnorm-stark-1-c643844d", "depthwise-hardswish-stark-1-629ee84b"
SWIGLU, SAMPLING = "rmsnorm-swiglu-stark-1-b64cac71", "rmsnorm-swiglu-sampling-1-dc60a3d0"
"""Runs among them."""

BENCH = "recorded-cpu"
"""The bench of the recordings on a CPU: four problems with three strategies."""


def fill(store: Store) -> None:
    """Store every shipped recording, and the bench."""
    asyncio.run(store.retried(_fill, store))  # one commit, which takes a tenth of the time


def _fill(store: Store) -> None:
    runs = []
    for path in sorted(RESULTS.rglob("*.json.gz")):
        recording = read_recording(path)
        keep(recording, store)
        if path.parent.name == "cpu" and path.stem.split(".")[0].endswith(
            ("stark", "sampling", "reflexion")
        ):
            runs.append(recording.run)
    store.create_bench(_bench(runs), ())


def _bench(runs: list[Run]) -> Bench:
    cells = tuple(
        Cell(
            problem=run.problem.name,
            level="examples",
            strategy=run.config.strategy.name,
            seed=run.config.seed,
            run_id=run.id,
        )
        for run in runs
    )
    created, attempts = datetime(2026, 11, 20, tzinfo=UTC), runs[0].config.budget.attempts
    budget = Budget(attempts=attempts * len(cells))
    return Bench(name=BENCH, created=created, cells=cells, attempts=attempts, budget=budget)
