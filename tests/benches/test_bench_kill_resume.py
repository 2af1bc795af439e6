"""Killed at random moments and gone on with, a bench ends with the report of one that nothing disturbed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stark.core.call import spent_by_role
from stark.problems import load_all
from stark.store import Store
from support import benches as samples

WORKER = Path(__file__).parent / "bench_worker.py"
KILLS = 5


def work(url: str, lines: int | None, delay_s: float = 0.0) -> list[str]:
    """What a worker said until it was killed, that long after so many lines; or until it ended."""
    command = [sys.executable, str(WORKER), url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            if lines is None:
                out, _ = process.communicate(timeout=120)
                assert 0 == process.returncode
                return out.splitlines()
            said = [process.stdout.readline() for _ in range(1 + lines)]
            time.sleep(delay_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return said + process.stdout.readlines()


def finished(store: Store) -> set[str]:
    bench = store.bench("killed")
    return {
        f"{cell.run_id} {attempt.id}"
        for cell in bench.cells
        for attempt in store.outcome(cell.run_id, bench.attempts).attempts
    }


@pytest.mark.slow
def test_killed_at_random_moments_a_bench_ends_with_the_report_of_an_unbroken_one(
    tmp_path: Path,
) -> None:
    url, moments = f"sqlite:///{tmp_path}/stark.db", random.Random(11)
    before: set[str] = set()
    for _ in range(KILLS):
        said = work(url, moments.randint(1, 14), moments.uniform(0, 0.03))
        told = {line.strip() for line in said[1:] if line.endswith("\n")}
        with Store.open(url) as store:
            after = finished(store)
        assert before | told <= after, "what was finished is stored"
        assert not told & before, "and was not done again"
        before = after
    work(url, None)

    with Store.open(url) as store, Store.open("sqlite://") as other:
        asyncio.run(
            samples.work(other, samples.killed_bench(other), 4, executor=samples.two_kinds())
        )
        assert samples.report_of(other) == samples.report_of(store)
        problems = len(load_all(str(samples.EXAMPLES)))
        assert problems * 3 * 3 == len(finished(store))
        assert samples.bill(other) == samples.bill(store), "no reply is paid twice"
        lost = 0
        for cell in store.bench("killed").cells:
            paid = [*store.calls(cell.run_id), *(gone := store.lost_calls(cell.run_id))]
            assert spent_by_role(paid) == store.spent(cell.run_id)[cell.run_id]
            lost += len(gone)
        assert 0 < lost <= 4 * KILLS, "calls in flight at a kill are on the bill as reserved"
