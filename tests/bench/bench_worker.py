"""A process to kill: `bench_worker.py URL` begins or goes on with one bench over the examples.

It prints a line when it is about to open the store and one for each finished attempt. Questions and
judgements take a few milliseconds, so that a kill finds some of each in flight.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import bench_samples as samples

from stark.bench.shared import ModelDoor
from stark.core.bench import Cell
from stark.core.call import Message, Reply
from stark.core.node import Node
from stark.store import Store
from stark.testing.executor import FakeExecutor

REPLY_S = 0.004
JUDGE_S = 0.006


class SlowModel:
    name = "scripted"

    def __init__(self) -> None:
        _, self._model = samples.door()

    async def ask(self, messages: tuple[Message, ...], temperature: float | None) -> Reply:
        await asyncio.sleep(REPLY_S)
        return await self._model.ask(messages, temperature)


class Telling(samples.Quiet):
    def attempted(self, cell: Cell, node: Node) -> None:
        say(f"{cell.run_id} {node.id}")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(url: str) -> None:
    say("opening")
    with Store.open(url) as store:
        bench = samples.new_bench(store, name="killed")
        executor, models = FakeExecutor(delay_s=JUDGE_S), ModelDoor(open_one=lambda _: SlowModel())
        asyncio.run(samples.work(store, bench, 4, executor, models, Telling()))


if __name__ == "__main__":
    main(sys.argv[1])
