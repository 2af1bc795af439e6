"""A whole bench in one process: 250 problems x 5 strategies x 30 attempts, with scripted models and judges.

    python benchmarks/scale.py [--problems 250] [--attempts 30]

Models and judges take the time below and have as many slots; everything else is the product: prompts, replies,
trees, the store with its commits, the report. Prints how long it took, the peak memory, the slowest
selection, how full the slots were and how long the loop stood still at most. Exits 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

from stark.benches.document import write_report
from stark.benches.grid import enter, lay_out
from stark.benches.report import make_report
from stark.benches.running import BenchEvent, BenchSession, Left
from stark.benches.suite import Member, Suite
from stark.configuration import configure
from stark.core.bench import Bench
from stark.core.call import Message, Reply
from stark.core.candidate import Candidate
from stark.core.evaluation import Effort, Evaluation
from stark.core.node import Selection
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import Run, Strategy
from stark.correspondence import ModelPool
from stark.options import RunOptions
from stark.problems import load_all
from stark.search.policies.base import Policy
from stark.search.tree import Tree
from stark.store import Store
from stark.strategies import STRATEGIES, policy_of
from support.executor import FakeExecutor, invented
from support.model import ScriptedModel
from support.replies import team_reply

MODEL_SLOTS, QUESTION_S = 32, 0.25
DEVICE_SLOTS, JUDGING_S = 8, 0.1
RUNS_IN_FLIGHT = 64
LIMIT_MINUTES, LIMIT_GB, LIMIT_SELECTION_MS = 15.0, 1.5, 5.0
KERNEL_LINES = 60
"""What is added to every scripted candidate, so that sources and prompts have a usual length."""

EXAMPLES = Path(__file__).parents[1] / "examples"


class Slots:
    """So many at once, and how long how many were taken."""

    def __init__(self, count: int) -> None:
        self.count, self.busy = count, 0
        self._free = asyncio.Semaphore(count)
        self._since_s = self._begin_s = time.perf_counter()
        self._taken_s = self._full_s = 0.0

    @asynccontextmanager
    async def one(self, seconds: float) -> AsyncIterator[None]:
        """Take a slot for that long."""
        async with self._free:
            self._change(1)
            try:
                await asyncio.sleep(seconds)
                yield
            finally:
                self._change(-1)

    def _change(self, by: int) -> None:
        now = time.perf_counter()
        self._taken_s += self.busy * (now - self._since_s)
        self._full_s += (self.busy == self.count) * (now - self._since_s)
        self._since_s, self.busy = now, self.busy + by

    def said(self) -> str:
        """Mean share of slots taken, and share of time that all were."""
        whole = time.perf_counter() - self._begin_s
        return (
            f"{self._taken_s / whole / self.count:.0%} taken, all {self.count} taken "
            f"{self._full_s / whole:.0%} of the time"
        )


class SlowModel(ScriptedModel):
    """Scripted replies of a usual length that take time; keeps nothing of what it was asked."""

    def __init__(self, slots: Slots) -> None:
        super().__init__(long_reply, dollars=0.01)
        self._slots = slots

    async def ask(
        self,
        messages: tuple[Message, ...],
        temperature: float | None,
        *,
        max_output_tokens: int | None = None,
    ) -> Reply:
        async with self._slots.one(QUESTION_S):
            reply = await super().ask(messages, temperature, max_output_tokens=max_output_tokens)
            self.asked.clear()
            return reply


def long_reply(messages: tuple[Message, ...]) -> str:
    """The team's reply, with a body as long as a small kernel's where it is a whole candidate."""
    reply = team_reply(messages)
    body = "".join(
        f"# line {n} of a kernel, as long as such lines are\n" for n in range(KERNEL_LINES)
    )
    return reply.replace("class ModelNew", f"{body}class ModelNew")


class SlowExecutor(FakeExecutor):
    """Invented verdicts that take time; keeps nothing of what it judged."""

    def __init__(self, slots: Slots) -> None:
        super().__init__()
        self._slots = slots

    async def describe(self, problem: Problem) -> Reference:
        async with self._slots.one(JUDGING_S):
            return await super().describe(problem)

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        async with self._slots.one(JUDGING_S):
            return invented(candidate)


class Timed:
    """A policy whose slowest selection is kept.

    In time of the processor: on the clock, whatever else the machine does may come between.
    """

    slowest_s = slowest_on_the_clock_s = 0.0

    def __init__(self, policy: Policy) -> None:
        self._policy, self.name = policy, policy.name

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        clock, begun = time.perf_counter(), time.thread_time()
        selection = self._policy.select(tree, rng)
        taken, passed = time.thread_time() - begun, time.perf_counter() - clock
        Timed.slowest_s = max(Timed.slowest_s, taken)
        Timed.slowest_on_the_clock_s = max(Timed.slowest_on_the_clock_s, passed)
        return selection


def timed(strategy: Strategy) -> Policy:
    """The strategy's policy, timed."""
    return Timed(policy_of(strategy))


class Lines:
    """Prints a line now and then."""

    def __init__(self) -> None:
        self._runs, self._begun_s = 0, time.perf_counter()

    def handle(self, event: BenchEvent) -> None:
        """Count the runs that ended."""
        if isinstance(event, Left):
            self._runs += 1
            if self._runs % 125 == 0:
                minutes = (time.perf_counter() - self._begun_s) / 60
                print(f"{self._runs} runs, {minutes:.1f} minutes, {peak_gb():.2f} GB", flush=True)


class Heart:
    """Beats a hundred times a second, and knows the longest it was kept from it."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def beat(self) -> None:
        """Until cancelled."""
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.01)
            self.longest_s = max(self.longest_s, time.perf_counter() - begun - 0.01)


def suite(count: int) -> Suite:
    """The examples again and again, each copy with a text and a level of its own."""
    examples = load_all(str(EXAMPLES))
    members = []
    for n in range(count):
        example = examples[n % len(examples)]
        copied = Problem(name=f"{n}_{example.name}", source=f"{example.source}# copy {n}\n")
        members.append(Member(f"level{1 + n % 3}", copied))
    return Suite("scale", tuple(members))


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


async def drive(store: Store, bench: Bench) -> tuple[Slots, Slots, Heart]:
    """The whole bench."""
    models, devices, heart = Slots(MODEL_SLOTS), Slots(DEVICE_SLOTS), Heart()
    pool = ModelPool(open_one=lambda *_: SlowModel(models))
    session = BenchSession(
        bench, store, SlowExecutor(devices), pool, Lines().handle, RUNS_IN_FLIGHT
    )
    beating = asyncio.create_task(heart.beat())
    await session.work()
    beating.cancel()
    return models, devices, heart


def main() -> int:
    """Measures and prints; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=250)
    parser.add_argument("--attempts", type=int, default=30)
    asked = parser.parse_args()
    configs = {
        name: configure(
            RunOptions(
                strategy=name,
                model="exec:scripted",
                language="triton",
                attempts=asked.attempts,
                seed=1,
            )
        )
        for name in STRATEGIES
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(f"sqlite:///{folder}/stark.db") as store,
        patch("stark.loop.policy_of", timed),
    ):
        return measure(store, Path(folder), *lay_out(suite(asked.problems), (1,), configs))


def measure(store: Store, folder: Path, bench: Bench, runs: list[Run]) -> int:
    """Work on the bench, report, and hold the figures against their bounds."""
    enter(store, bench, runs)
    begun, cpu = time.perf_counter(), time.process_time()
    models, devices, heart = asyncio.run(drive(store, bench))
    minutes, cpu_minutes = (time.perf_counter() - begun) / 60, (time.process_time() - cpu) / 60
    begun = time.perf_counter()
    write_report(make_report(store, store.bench(bench.name)), folder / "report")
    report_s = time.perf_counter() - begun
    attempts = len(bench.cells) * bench.attempts
    size = sum(file.stat().st_size for file in folder.glob("stark.db*") if file.is_file())
    print(
        f"runs                    {len(bench.cells):,} of {bench.attempts} attempts: {attempts:,}"
    )
    print(
        f"minutes                 {minutes:.1f} (limit {LIMIT_MINUTES:g}), {cpu_minutes:.1f} of CPU"
    )
    print(f"peak memory             {peak_gb():.2f} GB (limit {LIMIT_GB:g})")
    print(
        f"slowest selection       {1000 * Timed.slowest_s:.2f} ms (limit {LIMIT_SELECTION_MS:g}), "
        f"{1000 * Timed.slowest_on_the_clock_s:.2f} on the clock"
    )
    print(f"model slots             {models.said()}")
    print(f"device slots            {devices.said()}")
    print(f"longest pause           {1000 * heart.longest_s:.0f} ms of the event loop")
    print(f"report                  {report_s:.1f} s from the store to the files")
    print(f"store                   {size / 1e9:.2f} GB")
    held = (
        minutes <= LIMIT_MINUTES,
        peak_gb() <= LIMIT_GB,
        Timed.slowest_s * 1000 <= LIMIT_SELECTION_MS,
    )
    print("within the limits" if all(held) else "over a limit")
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
