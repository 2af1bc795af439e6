"""A process to kill: `bench_worker.py URL` begins or goes on with one bench over the examples.

It prints a line when it is about to open the store and one for each finished attempt. Questions and
judgements take a few milliseconds, so that a kill finds some of each in flight.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # this script is started by its path

from stark.core.bench import Cell
from stark.store import Store
from support import benches as samples
from support.model import ScriptedModel
from support.replies import team_reply

REPLY_S = 0.004
JUDGE_S = 0.006


class Telling(samples.Notes):
    def finished(self, cell: Cell, attempt: int) -> None:
        say(f"{cell.run_id} {attempt}")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(url: str) -> None:
    say("opening")
    with Store.open(url) as store:
        bench = samples.killed_bench(store)
        model = ScriptedModel(team_reply, dollars=0.25, delay_s=REPLY_S)
        executor, models = samples.two_kinds(delay_s=JUDGE_S), samples.pool_of(model)
        asyncio.run(samples.work(store, bench, 4, executor, models, Telling()))


if __name__ == "__main__":
    main(sys.argv[1])
