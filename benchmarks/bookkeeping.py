"""Measures what happens between two attempts of a run with 1,000 nodes: the node is stored, a selection made and stored.

    python benchmarks/bookkeeping.py [--store URL] [--attempts 1000] [--rounds 200]

A round lasts from the verdict on a candidate until the next attempt is on disk. Without `--store`, measures SQLite and,
where it is installed, a PostgreSQL server that waits for the disk. Exits 1 if the median of a store's rounds exceeds
the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median, quantiles

from orchestrators import replies_of, run

from stark.core.candidate import Candidate
from stark.core.evaluation import Evaluation
from stark.core.node import Node, Selection
from stark.core.run import Run
from stark.events import AttemptBegan, Event
from stark.loop import work_on
from stark.store import Store
from support.executor import FakeExecutor, invented
from support.nodes import random_tree
from support.postgres import programs, server

LIMIT_MS = 10.0


class Clock:
    """Times the rounds."""

    def __init__(self) -> None:
        self.rounds_ms: list[float] = []
        self._judged_s: float | None = None

    def judge(self, candidate: Candidate) -> Evaluation:
        """A verdict; a round begins."""
        verdict = invented(candidate)
        self._judged_s = time.perf_counter()
        return verdict

    def note(self, event: Event) -> None:
        """End the round when the next attempt has begun."""
        if isinstance(event, AttemptBegan) and self._judged_s is not None:
            self.rounds_ms.append(1000 * (time.perf_counter() - self._judged_s))


def fill(store: Store, run: Run, nodes: Sequence[Node]) -> None:
    """Store finished attempts."""
    store.create_run(run)
    for node in sorted(nodes, key=lambda node: node.id):
        selection = Selection(parent=node.parent, action=node.action)
        store.begin_attempt(run.id, node.id, selection)
    for node in nodes:
        store.add_node(run.id, node, 0.0)


async def rounds_ms(store: Store, attempts: int, rounds: int) -> list[float]:
    """The time of each round."""
    clock, grown = Clock(), run(0, 0, attempts + rounds)
    await store.retried(fill, store, grown, random_tree(attempts, random.Random(0)).nodes)
    await work_on(grown, store, FakeExecutor(clock.judge), replies_of(grown), clock.note)
    return clock.rounds_ms


def main() -> int:
    """Measures and prints; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store")
    parser.add_argument("--attempts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    asked = parser.parse_args()
    with ExitStack() as held:
        if asked.store:
            urls = [asked.store]
        else:
            folder = held.enter_context(tempfile.TemporaryDirectory())
            urls = [f"sqlite:///{folder}/stark.db"]
            if programs():
                urls.append(held.enter_context(server(durable=True)).url())
        typical = []
        for url in urls:
            with Store.open(url) as store:
                times = asyncio.run(rounds_ms(store, asked.attempts, asked.rounds))
            typical.append(median(times))
            print(
                f"{url.partition(':')[0]:<20} median {median(times):6.2f} ms, 95 % {quantiles(times, n=20)[-1]:6.2f} ms, "
                f"worst {max(times):6.2f} ms"
            )
    print(f"{'within' if max(typical) <= LIMIT_MS else 'over'} the limit of {LIMIT_MS:g} ms")
    return int(max(typical) > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
