"""What one orchestrator, one store and one cluster hold: measured on recorded runs, and simulated beyond.

    python benchmarks/capacity.py RECORDING... [--problems FOLDER] [--gpus 1000] [--per-hour 100000] [--model-s 30]

Replays the runs through PostgreSQL with the recorded verdicts, which measures the processor time, the commits, the rows
and the bytes of an attempt. Then simulates clusters: each orchestrator, each core of the store's server and each judge
serves one request after the other, and models answer after `--model-s` on average. Judge seconds are drawn from the
recordings.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import mean

from sqlalchemy import Connection, create_engine, text

from stark.configuration import replayed_run
from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Evaluation
from stark.evaluator.protocol import Evaluate, Evaluated
from stark.loop import work_on
from stark.options import RunOptions
from stark.problems import load
from stark.recorded import RecordedReplies, Recording, read_recording
from stark.search.policies.recorded import Recorded
from stark.store import Store
from support.executor import FakeExecutor
from support.postgres import server

STORE_CORES = 16
PARALLEL = 8
"""Attempts of a simulated run at once."""


@dataclass(frozen=True)
class Attempt:
    """What an attempt needs on average. Times in seconds, sizes in bytes."""

    calls: float
    input_tokens: float
    output_tokens: float
    orchestrator_s: float
    """Processor time of the orchestrator."""

    store_s: float
    """Processor time of the store's server."""

    commits: float
    rows: float
    stored: float
    to_judge: float
    from_judge: float
    judge_s: tuple[float, ...]
    """The recorded evaluations of the search, with their builds."""

    final_s: float
    """The attempt's share of the final checks."""


@dataclass(frozen=True)
class Counts:
    """What the store's server has done so far."""

    commits: int
    stored: int
    rows: int
    busy_s: float

    @staticmethod
    def of(connection: Connection) -> Counts:
        """Reads them."""
        database = "SELECT xact_commit, pg_database_size(datname) FROM pg_stat_database WHERE datname = current_database()"
        commits, stored = connection.execute(text(database)).one()
        schema = (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        )
        rows = sum(
            connection.scalar(text(f'SELECT count(*) FROM "{table}"')) or 0
            for table in connection.scalars(text(schema)).all()
        )
        backend = connection.scalar(text("SELECT pg_backend_pid()"))
        connection.rollback()
        return Counts(commits, stored, rows, _busy_s(_parent(int(backend or 0))))


def _stat(pid: int | str) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _busy_s(postmaster: int) -> float:
    """Processor time of a server and its processes, also of those that have ended."""
    ticks = sum(map(int, _stat(postmaster)[11:15]))
    for process in Path("/proc").glob("[0-9]*"):
        if _parent(int(process.name)) == postmaster:
            ticks += sum(map(int, _stat(process.name)[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(recordings: Sequence[Recording], copies: int) -> Attempt:
    """Replay each recording `copies` times."""
    calls = [call for each in recordings for call in each.calls]
    nodes = [node for each in recordings for node in each.nodes]
    judged = [
        (each.run.problem, node) for each in recordings for node in each.nodes if node.candidate
    ]
    with server(durable=True) as started:
        url = started.url()
        engine = create_engine(url)
        with Store.open(url) as store, engine.connect() as connection:
            asyncio.run(replay(recordings, "first", store))  # imports and caches
            before, begun_s = Counts.of(connection), time.process_time()
            for number in range(copies):
                asyncio.run(replay(recordings, str(number), store))
            busy_s = time.process_time() - begun_s
            time.sleep(1.5)  # until the server has written its statistics
            after = Counts.of(connection)
        engine.dispose()
    attempts = copies * len(nodes)
    return Attempt(
        calls=len(calls) / len(nodes),
        input_tokens=sum(call.spent.input_tokens for call in calls) / len(nodes),
        output_tokens=sum(call.spent.output_tokens for call in calls) / len(nodes),
        orchestrator_s=busy_s / attempts,
        store_s=(after.busy_s - before.busy_s) / attempts,
        commits=(after.commits - before.commits) / attempts,
        rows=(after.rows - before.rows) / attempts,
        stored=(after.stored - before.stored) / attempts,
        to_judge=mean(
            len(Evaluate(id="0", problem=problem, candidate=node.candidate).model_dump_json())
            for problem, node in judged
            if node.candidate
        ),
        from_judge=mean(
            len(Evaluated(id="0", evaluation=node.evaluation).model_dump_json())
            for _, node in judged
        ),
        judge_s=tuple(
            sum(node.evaluation.seconds.values())
            for _, node in judged
            if isinstance(node.evaluation, Correct)
        ),
        final_s=sum(
            sum(found.seconds.values())
            for each in recordings
            for found in each.promotions.values()
            if isinstance(found, Correct)
        )
        / len(nodes),
    )


async def replay(recordings: Sequence[Recording], name: str, store: Store) -> None:
    """Work on all runs at once, as `name`."""
    await asyncio.gather(
        *(
            work_on(
                replayed_run(each, RunOptions(), ()).model_copy(update={"id": f"{name}-{number}"}),
                store,
                FakeExecutor(verdicts(each), device=each.reference.device),
                RecordedReplies(each),
                policy=Recorded(each.selections),
            )
            for number, each in enumerate(recordings)
        )
    )


def verdicts(recording: Recording) -> Callable[[Candidate], Evaluation]:
    """The recorded ones."""
    known = {node.candidate.digest: node.evaluation for node in recording.nodes if node.candidate}
    return lambda candidate: known[candidate.digest]


class Station:
    """Several servers with one queue."""

    def __init__(self, servers: int) -> None:
        self._free = [0.0] * servers
        self.busy_s = 0.0

    def serve(self, now_s: float, takes_s: float) -> float:
        """When a request that arrives now is done. Requests arrive in the order of time."""
        done_s = max(now_s, heapq.heappop(self._free)) + takes_s
        heapq.heappush(self._free, done_s)
        self.busy_s += takes_s
        return done_s

    def share(self, until_s: float) -> float:
        """How much of the servers' time was used."""
        return self.busy_s / until_s / len(self._free)


def simulate(
    each: Attempt, orchestrators: int, runs: int, gpus: int, model_s: float, hours: float = 1.0
) -> str:
    """One row of the table: attempts per hour, and how busy each station was."""
    rng, end_s, order = random.Random(0), 3600 * hours, count()
    drivers = [Station(1) for _ in range(orchestrators)]
    store, judges = Station(STORE_CORES), Station(gpus)
    steps = round(each.calls) + 1  # the calls, then the judge
    events = [
        (rng.uniform(0, steps * model_s), next(order), run % orchestrators, 0)
        for run in range(runs)
        for _ in range(PARALLEL)
    ]
    heapq.heapify(events)
    finished = 0
    while events[0][0] < end_s:
        now_s, _, driver, step = heapq.heappop(events)
        if step == steps:
            finished, step = finished + 1, 0
        now_s = drivers[driver].serve(now_s, each.orchestrator_s / steps)
        now_s = store.serve(now_s, each.store_s / steps)
        if step < steps - 1:
            now_s += rng.lognormvariate(-0.125, 0.5) * model_s  # whose mean is model_s
        else:
            now_s = judges.serve(now_s, rng.choice(each.judge_s) + each.final_s)
        heapq.heappush(events, (now_s, next(order), driver, step + 1))
    driven = mean(station.share(end_s) for station in drivers)
    return (
        f"| {orchestrators} | {runs} | {finished / hours:,.0f} | {driven:.0%} | {store.share(end_s):.0%} | "
        f"{judges.share(end_s):.0%} |"
    )


def whole(recordings: Sequence[Recording], problems: Path | None) -> list[Recording]:
    """The recordings, each with its problem's text, which may be in a file in `problems`."""
    found = [load(str(path)) for path in problems.rglob("*.py")] if problems else []
    texts = {problem.digest: problem for problem in found}
    return [
        each.with_problem(texts[each.left_out]) if each.left_out else each for each in recordings
    ]


def main() -> None:
    """Measures, simulates and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--problems", type=Path, help="folder of texts that recordings leave out")
    parser.add_argument("--copies", type=int, default=5)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--per-hour", type=int, default=100_000)
    parser.add_argument("--model-s", type=float, default=30.0)
    asked = parser.parse_args()
    recordings = [read_recording(path) for path in asked.recordings]
    each = measure(whole(recordings, asked.problems), asked.copies)
    per_s, judge_s = asked.per_hour / 3600, mean(each.judge_s) + each.final_s
    print(f"| an attempt | | at {asked.per_hour:,} an hour |\n|---|---|---|")
    for name, value, unit, total, total_unit in (
        ("model calls", each.calls, "", each.calls * asked.per_hour, " an hour"),
        ("input tokens", each.input_tokens, "", each.input_tokens * per_s * 60 / 1e6, " M a minute"),
        ("output tokens", each.output_tokens, "", each.output_tokens * per_s * 60 / 1e6, " M a minute"),
        ("judge", judge_s, " s", judge_s * per_s, " judges busy"),
        ("orchestrator", 1000 * each.orchestrator_s, " ms", each.orchestrator_s * per_s, " cores"),
        ("store's server", 1000 * each.store_s, " ms", each.store_s * per_s, " cores"),
        ("commits", each.commits, "", each.commits * per_s, " a second"),
        ("rows", each.rows, "", each.rows * asked.per_hour / 1e6, " M an hour"),
        ("stored", each.stored / 1e3, " KB", each.stored * asked.per_hour / 1e9, " GB an hour"),
        ("to the judge", each.to_judge / 1e3, " KB", each.to_judge * per_s / 1e6, " MB a second"),
        ("from the judge", each.from_judge / 1e3, " KB", each.from_judge * per_s / 1e6, " MB a second"),
    ):  # fmt: skip
        print(f"| {name} | {value:,.1f}{unit} | {total:,.1f}{total_unit} |")
    print(
        "\n| orchestrators | runs | attempts/h | orchestrators | store | judges |\n|---|---|---|---|---|---|"
    )
    apart_s = each.calls * asked.model_s + judge_s
    for hourly in (asked.per_hour / 4, asked.per_hour, 3600 * asked.gpus / judge_s):
        runs = round(hourly / 3600 * apart_s / PARALLEL)
        least = hourly / 3600 * each.orchestrator_s
        for orchestrators in sorted({1, round(least / 0.6) or 1}):
            print(simulate(each, orchestrators, runs, asked.gpus, asked.model_s))


if __name__ == "__main__":
    main()
