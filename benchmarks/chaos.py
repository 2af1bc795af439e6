"""Kills one thing after the other at random while a bench runs on a Ray cluster and PostgreSQL. Is anything lost?

    python benchmarks/chaos.py [--kills 10] [--only actor judge raylet orchestrator postgres head]

For each kind of victim, a bench of 8 problems with 12 attempts each is worked on by a process of its own, with scripted
replies and scripted judges in the actors of a cluster of two nodes. Its victims are killed with SIGKILL. A dead
orchestrator or cluster is started again. At the end the bench must have the report and the bill of one that nothing
disturbed: no reply paid twice, one verdict for each attempt, nobody blamed for a dead node. After each kill the judges
of a dead worker must be gone within 5 s. Exits 1 if a bench differs.
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
from pathlib import Path
from typing import Any

from stark.benches.running import unfinished
from stark.core.errors import StarkError
from stark.evaluator.executors import cluster
from stark.evaluator.executors.cluster import RayExecutor
from stark.evaluator.executors.engine import ray
from stark.store import Store
from support import FAKE_JUDGE, benches
from support.model import ScriptedModel
from support.postgres import Server, server
from support.processes import is_gone
from support.replies import team_reply

PROBLEMS = (
    "depthwise_hardswish expert_dispatch gated_causal_conv layernorm_gelu_residual masked_softmax moving_average "
    "rmsnorm_swiglu small_matmuls"
).split()
ATTEMPTS, PARALLEL = 12, 8
REPLY_S, JUDGING_S = 0.03, 0.4
PAUSE_S = (0.2, 1.5)
"""Between two kills."""

GONE_S = 5.0
PORT = 6380


class Cluster:
    """A head without processors, and two nodes with two judges each, on this machine."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as Nodes

        soon = {
            "health_check_initial_delay_ms": 500,
            "health_check_period_ms": 500,
            "health_check_failure_threshold": 3,
        }
        self._nodes: Any = Nodes()
        self._nodes.add_node(
            num_cpus=0, include_dashboard=False, gcs_server_port=PORT, _system_config=soon
        )
        self._workers = [self._nodes.add_node(num_cpus=2) for _ in range(2)]
        self.address: str = self._nodes.address

    def replace_node(self, moments: random.Random) -> None:
        """Kill a node's raylet, and add another node."""
        node = self._workers.pop(moments.randrange(2))
        self._nodes.remove_node(node, allow_graceful=False)
        self._workers.append(self._nodes.add_node(num_cpus=2))

    def kill(self) -> None:
        """Kill everything, the head first."""
        self._nodes.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
        for node in self._workers:
            node.kill_all_processes(check_alive=False, allow_graceful=False)

    def close(self) -> None:
        with suppress(Exception):  # whatever is dead already
            self._nodes.shutdown()


class Bench:
    """A bench that a process works on, and what can be killed of it."""

    def __init__(self, database: Server, folder: Path, moments: random.Random) -> None:
        self.url, self.notes = database.url(), folder / "notes"
        self._database, self._moments = database, moments
        self._cluster = Cluster()
        self._log = (folder / "log").open("ab")
        self._orchestrator = self._started()

    @property
    def running(self) -> bool:
        return self._orchestrator.poll() is None

    def resume(self) -> None:
        """Start the orchestrator again if it has ended before its time."""
        if self._orchestrator.poll() not in (None, 0):
            self._orchestrator = self._started()

    def close(self) -> None:
        self._orchestrator.kill()
        self._orchestrator.wait()
        self._cluster.close()

    def kill_actor(self) -> None:
        self._kill(_hosts(self.notes))

    def kill_judge(self) -> None:
        self._kill(_judges(self.notes))

    def kill_raylet(self) -> None:
        workers = {judge: _parent(judge) for judge in _judges(self.notes)}
        self._cluster.replace_node(self._moments)
        dead = [judge for judge, worker in workers.items() if is_gone(worker)]
        assert all(map(_goes, dead)), "a judge has outlived its worker"

    def kill_orchestrator(self) -> None:
        self._orchestrator.kill()
        self._orchestrator.wait()
        self.resume()

    def kill_postgres(self) -> None:
        self._database.kill()
        self._database.start()

    def kill_head(self) -> None:
        before = _judges(self.notes)
        self._cluster.kill()
        assert all(map(_goes, before)), "a judge has outlived its worker"
        self._orchestrator.kill()  # it would wait for the cluster for minutes
        self._orchestrator.wait()
        self._cluster.close()
        self._cluster = Cluster()
        self.resume()

    def _kill(self, victims: list[int]) -> None:
        if not victims:
            return
        victim = self._moments.choice(victims)
        below = [pid for pid in _judges(self.notes) if _parent(pid) == victim]
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        assert all(map(_goes, [victim, *below])), "a judge has outlived its worker"

    def _started(self) -> subprocess.Popen[bytes]:
        asked = self.url, self._cluster.address, str(self.notes)
        command = [sys.executable, __file__, "--work", *asked]
        return subprocess.Popen(command, stderr=self._log, stdout=self._log, start_new_session=True)


KINDS: dict[str, Callable[[Bench], None]] = {
    name.removeprefix("kill_"): getattr(Bench, name)
    for name in sorted(vars(Bench))
    if name.startswith("kill_")
}


def _processes(word: bytes) -> list[tuple[int, list[bytes]]]:
    """Processes of whose command line one word is this, with all words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if word in words:
                found.append((int(path.parent.name), words))
    return found


def _judges(notes: Path) -> list[int]:
    return [pid for pid, words in _processes(FAKE_JUDGE.encode()) if bytes(notes) in words]


def _hosts(notes: Path) -> list[int]:
    """The actors of the judges."""
    return sorted({_parent(pid) for pid in _judges(notes)} - {0, 1})


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _goes(pid: int) -> bool:
    """Whether a process has ended before its time is over."""
    until = time.monotonic() + GONE_S
    while not is_gone(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _entered(store: Store) -> Any:
    paths = [benches.EXAMPLES / f"{name}.py" for name in PROBLEMS]
    return benches.new_bench(store, ATTEMPTS, name="chaos", strategies=("stark",), problems=paths)


def work(url: str, address: str, notes: str) -> int:
    """The orchestrator. Returns 1 if it must be started again."""
    cluster.LOST_PAUSE_S = 0.2
    command = [sys.executable, FAKE_JUDGE, notes, "--inventing", "--judging-s", str(JUDGING_S)]
    executor = RayExecutor(f"{address}?device=cpu&judges=4", command=command)

    async def worked() -> bool:
        model = ScriptedModel(team_reply, dollars=0.25, delay_s=REPLY_S)
        with Store.open(url) as store:
            bench = _entered(store)
            await benches.work(store, bench, PARALLEL, executor, benches.pool_of(model))
            left = unfinished(store, bench)  # a dead orchestrator's lease keeps them for 30 s
        await executor.close()
        return not left

    try:
        return 0 if asyncio.run(worked()) else 1
    except StarkError as error:
        print(error, flush=True)
        return 1


def _disturbed(kind: str, kills: int, database: Server, moments: random.Random) -> list[str]:
    """Work on a bench while victims of a kind are killed; returns what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        bench, killed, begin = Bench(database, Path(folder), moments), 0, time.monotonic()
        try:
            while bench.running or killed == 0:
                time.sleep(moments.uniform(*PAUSE_S))
                if killed < kills and (_judges(bench.notes) or kind == "postgres"):
                    KINDS[kind](bench)
                    killed += 1
                bench.resume()
                if time.monotonic() - begin > 900:
                    return [f"not at its end after 900 s\n{(Path(folder) / 'log').read_text()}"]
        finally:
            bench.close()
            ray().shutdown()
        print(f"{kind}: {killed} kills in {time.monotonic() - begin:.0f} s", flush=True)
        with Store.open(bench.url) as store, Store.open("sqlite://") as other:
            asyncio.run(benches.work(other, _entered(other), PARALLEL))
            wrong = []
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
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(*options.work)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    failed = False
    with server() as database:
        for kind in options.only:
            found = _disturbed(kind, options.kills, database, random.Random(options.seed))
            failed |= bool(found)
            print(f"{kind}: {'; '.join(found) or 'as if nothing had happened'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
