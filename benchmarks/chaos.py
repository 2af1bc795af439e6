"""Kills one thing after the other at random while a bench runs on a Ray cluster and PostgreSQL. Is anything lost?

    python benchmarks/chaos.py [--kills 10] [--only actor head judge orchestrator postgres raylet worker]

For each kind of victim, a bench of 8 problems with 12 attempts each is worked on by a process of its own, with scripted
replies and scripted judges in the actors of a cluster of two nodes. Its victims are killed with SIGKILL, one after the
other, each after the bench has gone on. A dead orchestrator or head is started again. At the end the bench must have the
report and the bill of one that nothing disturbed: no reply paid twice, one verdict for each attempt, nobody blamed for a
dead node. After each kill the judges of a dead worker must be gone within 5 s. Exits 1 if a bench differs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from stark.benches.running import unfinished
from stark.core.bench import Cell
from stark.core.errors import StarkError
from stark.evaluator.executors import engine
from stark.evaluator.executors.cluster import NAMESPACE, RayExecutor
from stark.evaluator.executors.engine import ray
from stark.store import Store, leases
from support import FAKE_JUDGE, benches
from support.model import ScriptedModel
from support.postgres import Server, server
from support.processes import family, outlived_s
from support.ray_nodes import RayNodes
from support.replies import team_reply

PROBLEMS = (
    "depthwise_hardswish expert_dispatch gated_causal_conv layernorm_gelu_residual masked_softmax moving_average "
    "rmsnorm_swiglu small_matmuls"
).split()
ATTEMPTS, PARALLEL = 12, 8
REPLY_S = 0.03
JUDGING_S, HEADLESS_JUDGING_S = 0.4, 1.6
"""Seconds that a judge takes; the second while heads are killed, since the bench goes on until Ray has noticed that."""

PAUSE_S = (0.0, 1.0)
"""Between the first attempt that is finished after a kill, and the next kill."""

GONE_S = 5.0
LEASE_S = 3.0
"""Instead of 30, which a dead orchestrator's runs would wait for ten times."""

FINISHED = b"finished an attempt\n"
LIMIT_S = 900.0


class Bench:
    """A bench that a process works on, and what can be killed of it."""

    def __init__(
        self, database: Server, folder: Path, moments: random.Random, judging_s: float
    ) -> None:
        self.url, self._notes = database.url(), folder / "notes"
        self._database, self._moments, self._judging_s = database, moments, judging_s
        self._nodes = RayNodes(cpus=2)
        self.log = folder / "log"
        self._orchestrator = self._started()
        self.longest_s = 0.0
        """For which a judge has outlived its worker."""

    @property
    def running(self) -> bool:
        return self._orchestrator.poll() is None

    @property
    def finished(self) -> int:
        """The number of attempts that were finished."""
        return self.log.read_bytes().count(FINISHED)

    def resume(self) -> None:
        """Start the orchestrator again if it has ended before its time."""
        if self._orchestrator.poll() not in (None, 0):
            self._orchestrator = self._started()

    def close(self) -> None:
        self._orchestrator.kill()
        self._orchestrator.wait()
        self._nodes.close()

    def kill_actor(self) -> None:
        """As Ray kills one, which it then starts again."""
        from ray._private.state import actors

        ray().init(self._nodes.address, log_to_driver=False, logging_level="ERROR")
        try:
            alive = [each for each in actors().values() if each["State"] == "ALIVE"]
            victim = self._moments.choice(alive)
            kill = partial(ray().kill, ray().get_actor(victim["Name"], NAMESPACE), no_restart=False)
            self._note(outlived_s(kill, [victim["Pid"]], GONE_S))
        finally:
            ray().shutdown()

    def kill_worker(self) -> None:
        """The process of an actor."""
        self._kill(self._nodes.workers())

    def kill_judge(self) -> None:
        self._kill([pid for pid in family(self._nodes.workers()) if _is_judge(pid)])

    def kill_raylet(self) -> None:
        """Of a node with a worker."""
        worker = self._moments.choice(self._nodes.workers())
        self._note(self._nodes.replace_node(worker, GONE_S))

    def kill_orchestrator(self) -> None:
        self._orchestrator.kill()
        self._orchestrator.wait()

    def kill_postgres(self) -> None:
        self._database.kill()
        self._database.start()

    def kill_head(self) -> None:
        """Everything else ends by itself: Ray ends the orchestrator, too."""
        self._note(self._nodes.kill_head(GONE_S))
        self._orchestrator.wait()
        self._nodes.close()
        self._nodes = RayNodes(cpus=2)

    def _kill(self, victims: list[int]) -> None:
        victim = self._moments.choice(victims)
        self._note(outlived_s(lambda: os.kill(victim, signal.SIGKILL), [victim], GONE_S))

    def _note(self, outlived_s: float) -> None:
        self.longest_s = max(self.longest_s, outlived_s)

    def _started(self) -> subprocess.Popen[bytes]:
        asked = self.url, self._nodes.address, str(self._notes), str(self._judging_s)
        command = [sys.executable, __file__, "--work", *asked]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stderr=log, stdout=log, start_new_session=True)


KINDS: dict[str, Callable[[Bench], None]] = {
    name.removeprefix("kill_"): getattr(Bench, name)
    for name in sorted(vars(Bench))
    if name.startswith("kill_")
}


def _is_judge(pid: int) -> bool:
    with suppress(OSError):
        return FAKE_JUDGE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


class Notes(benches.Notes):
    """Tells whoever kills that the bench goes on."""

    def finished(self, cell: Cell, attempt: int) -> None:
        os.write(1, FINISHED)


def _entered(store: Store) -> Any:
    paths = [benches.EXAMPLES / f"{name}.py" for name in PROBLEMS]
    return benches.new_bench(store, ATTEMPTS, name="chaos", strategies=("stark",), problems=paths)


def work(url: str, address: str, notes: str, judging_s: str) -> int:
    """The orchestrator. Returns 1 if it must be started again."""
    engine.LOST_PAUSE_S, leases.LEASE_S = 0.2, LEASE_S
    command = [sys.executable, FAKE_JUDGE, notes, "--inventing", "--judging-s", judging_s]
    executor = RayExecutor(f"{address}?device=cpu&judges=4", command=command)

    async def worked() -> None:
        model = ScriptedModel(team_reply, dollars=0.25, delay_s=REPLY_S)
        with Store.open(url) as store:
            bench = _entered(store)
            while unfinished(store, bench):  # a dead orchestrator's lease keeps them for a while
                await benches.work(
                    store, bench, PARALLEL, executor, benches.pool_of(model), Notes()
                )
                await asyncio.sleep(0.2)
        await executor.close()

    try:
        asyncio.run(worked())
        return 0
    except StarkError as error:
        print(error, flush=True)
        return 1


def _disturbed(kind: str, kills: int, database: Server, moments: random.Random) -> list[str]:
    """Work on a bench while victims of a kind are killed; returns what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        judging_s = HEADLESS_JUDGING_S if kind == "head" else JUDGING_S
        bench = Bench(database, Path(folder), moments, judging_s)
        killed, seen, begin = 0, 0, time.monotonic()
        try:
            while bench.running:
                if killed < kills and bench.finished > seen:
                    time.sleep(moments.uniform(*PAUSE_S))
                    KINDS[kind](bench)
                    killed, seen = killed + 1, bench.finished
                bench.resume()
                time.sleep(0.02)
                if time.monotonic() - begin > LIMIT_S:
                    return [f"not at its end after {LIMIT_S:g} s\n{bench.log.read_text()}"]
        finally:
            bench.close()
        took_s, longest_s = time.monotonic() - begin, bench.longest_s
        print(
            f"{kind}: {killed} kills in {took_s:.0f} s; outlived for {longest_s:.1f} s", flush=True
        )
        with Store.open(bench.url) as store, Store.open("sqlite://") as other:
            asyncio.run(benches.work(other, _entered(other), PARALLEL))
            wrong = [] if killed == kills else ["the bench was over too soon"]
            if benches.report_of(store) != benches.report_of(other):
                wrong.append("another report")
            if benches.bill(store) != benches.bill(other):
                wrong.append("another bill")
            return wrong


def main() -> int:
    """Disturb one bench for each kind of victim; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(*options.work)
    failed = False
    with server() as database:
        for kind in options.only:
            found = _disturbed(kind, options.kills, database, random.Random(options.seed))
            failed |= bool(found)
            print(f"{kind}: {'; '.join(found) or 'as if nothing had happened'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
