"""Several processes write many runs to one PostgreSQL server at once: is every run complete and right, and how fast?

    python benchmarks/orchestrators.py [--processes 8] [--runs 25] [--attempts 10] [--store URL]

Each process works on its own `--runs` runs at once, with scripted models and invented verdicts that take no time, so
that the store is what limits them. Each stored run is then compared with the same run in memory. Without `--store`,
starts a server that waits for the disk. Exits 1 if a run differs.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import create_engine, text

from stark.configuration import configure
from stark.core.call import Call
from stark.core.node import Node
from stark.core.run import Ended, Run
from stark.correspondence import LiveReplies, ModelPool
from stark.loop import work_on
from stark.options import RunOptions
from stark.problems import load
from stark.store import Store
from support.executor import FakeExecutor
from support.model import ScriptedModel
from support.postgres import server
from support.replies import team_reply

EXAMPLE = Path(__file__).parents[1] / "examples" / "depthwise_hardswish.py"


class Stored(NamedTuple):
    """What a store has of a run."""

    nodes: list[Node]
    calls: list[Call]
    ended: Ended | None
    unanswered: dict[str, int]


def run(process: int, number: int, attempts: int) -> Run:
    """A run of its own name and seed."""
    options = RunOptions(
        model="exec:scripted", language="triton", attempts=attempts, seed=100 * process + number
    )
    return Run(
        id=f"run-{process}-{number}",
        created=datetime(2026, 3, 1, tzinfo=UTC),
        problem=load(str(EXAMPLE)),
        config=configure(options),
        version="0",
    )


async def work(store: Store, runs: list[Run]) -> None:
    """Work on all runs at once."""
    executor = FakeExecutor()
    await asyncio.gather(*(work_on(each, store, executor, replies_of(each)) for each in runs))


def replies_of(run: Run) -> LiveReplies:
    """Scripted replies."""
    pool = ModelPool(open_one=lambda *_: ScriptedModel(team_reply, dollars=0.01))
    return LiveReplies(run.config.models, pool)


def stored(store: Store, run_id: str) -> Stored:
    return Stored(
        store.nodes(run_id), store.calls(run_id), store.ended(run_id), store.unanswered(run_id)
    )


def expected(each: Run) -> Stored:
    """The run of one undisturbed process."""
    with Store.open("sqlite://") as store:
        asyncio.run(work(store, [each]))
        return stored(store, each.id)


def measure(url: str, processes: int, runs: int, attempts: int) -> tuple[float, list[str]]:
    """Let all processes work at once; returns how many seconds they took, and the runs that are not as expected."""
    Store.open(url).close()
    own = [sys.executable, __file__, f"--runs={runs}", f"--attempts={attempts}", f"--store={url}"]
    with ExitStack() as started:
        working = [
            started.enter_context(
                subprocess.Popen(
                    [*own, f"--process={number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            for number in range(processes)
        ]
        for each in working:  # until all have imported what they need
            assert each.stdout is not None
            each.stdout.readline()
        begun = time.perf_counter()
        for each in working:
            assert each.stdin is not None
            each.stdin.close()
        failed = [number for number, each in enumerate(working) if each.wait()]
        seconds = time.perf_counter() - begun
    if failed:
        raise RuntimeError(f"the processes {failed} failed")
    every = [
        run(process, number, attempts) for process in range(processes) for number in range(runs)
    ]
    with Store.open(url) as store:
        wrong = [each.id for each in every if expected(each) != stored(store, each.id)]
        if len(every) != len(store.progress()):
            wrong.append("the list of runs")
    return seconds, wrong


def report(url: str, seconds: float, runs: int, attempts: int) -> None:
    """Print the throughput, and what the server counted."""
    counted = "SELECT xact_commit, xact_rollback, deadlocks FROM pg_stat_database WHERE datname = current_database()"
    engine = create_engine(url)
    with engine.connect() as connection:
        commits, rollbacks, deadlocks = connection.execute(text(counted)).one()
    engine.dispose()
    made = runs * attempts
    print(f"{runs} runs of {attempts} attempts in {seconds:.1f} s: {made / seconds:.0f} attempts/s")
    print(
        f"{commits / seconds:.0f} commits/s; {rollbacks} transactions undone, {deadlocks} deadlocks"
    )


def main() -> int:
    """Measures and prints, or is one of the processes; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--attempts", type=int, default=10)
    parser.add_argument("--store")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.process is not None:
        with Store.open(asked.store) as store:
            print("ready", flush=True)
            sys.stdin.read()
            runs = [run(asked.process, number, asked.attempts) for number in range(asked.runs)]
            asyncio.run(work(store, runs))
        return 0
    with ExitStack() as held:
        url = asked.store or held.enter_context(server(durable=True)).url()
        seconds, wrong = measure(url, asked.processes, asked.runs, asked.attempts)
        report(url, seconds, asked.processes * asked.runs, asked.attempts)
    print(f"not as expected: {', '.join(wrong)}" if wrong else "every run is complete and right")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
