"""Kills what real judges in a Ray cluster need while candidates run in their sandbox. Do their processes end, too?

    python benchmarks/orphans.py [--kills 10] [--only head judge raylet worker]

A process of its own has candidates judged by a judge for the CPU: one that is compiled and computes, and one that
starts another process and then never returns. As soon as one of them runs confined, and a random moment
has passed, a victim dies by SIGKILL. Every process below the dead worker or judge must end within 5 s: the judge, its
process for the problem, forkservers, the running reference, compilers and whatever a candidate has started. Every second
victim dies while a candidate's own process runs. Exits 1 if something is left.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stark.core.candidate import Candidate
from stark.core.errors import StarkError
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import engine
from stark.evaluator.executors.cluster import RayExecutor
from stark.problems import load
from support.candidates import PROBLEM, as_candidate
from support.processes import family, outlived_s
from support.ray_nodes import RayNodes

EXAMPLES = Path(__file__).parents[1] / "examples"
COMPILED = "moving_average"
NEVER_RETURNS = """
import subprocess
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        subprocess.Popen(["sleep", "777"], start_new_session=True)
        while True:
            torch.relu(x)
"""
LIMITS = Limits(verify_s=20.0, timing_budget_s=1.0)
PAUSE_S = (0.0, 3.0)
"""Between the first sight of a confined process, and the kill."""

READY_S = 120.0
GONE_S = 5.0


class Judging:
    """A process that has candidates judged in a cluster, and what can be killed below it."""

    def __init__(self, moments: random.Random) -> None:
        self._moments = moments
        self._nodes = RayNodes(cpus=1)
        self._asking = self._started()

    def busy(self, runs: Callable[[int], bool]) -> list[int]:
        """The workers below which a process is as wanted. Starts the process again that asks for more."""
        if self._asking.poll() is not None:
            self._asking = self._started()
        return [pid for pid in self._nodes.workers() if any(map(runs, family([pid])))]

    def kill_worker(self, worker: int) -> float:
        """The process of an actor."""
        return outlived_s(lambda: os.kill(worker, signal.SIGKILL), [worker], GONE_S)

    def kill_judge(self, worker: int) -> float:
        judge = family([worker])[1]
        return outlived_s(lambda: os.kill(judge, signal.SIGKILL), [judge], GONE_S)

    def kill_raylet(self, worker: int) -> float:
        return self._nodes.replace_node(worker, GONE_S)

    def kill_head(self, _: int) -> float:
        took_s = self._nodes.kill_head(GONE_S)
        self.close()
        self._nodes = RayNodes(cpus=1)
        return took_s

    def close(self) -> None:
        self._asking.kill()
        self._asking.wait()
        self._nodes.close()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, "--ask", self._nodes.address]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


KINDS: dict[str, Callable[[Judging, int], float]] = {
    name.removeprefix("kill_"): getattr(Judging, name)
    for name in sorted(vars(Judging))
    if name.startswith("kill_")
}


def _is_confined(pid: int) -> bool:
    with suppress(OSError):
        return "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()
    return False


def _is_daemon(pid: int) -> bool:
    """Whether this is the process that `NEVER_RETURNS` starts."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    return False


def _candidates() -> list[tuple[Problem, Candidate]]:
    compiled = (EXAMPLES / "kernels" / f"{COMPILED}.py").read_text()
    return [
        (PROBLEM, as_candidate("cpp", f"import torch\n{NEVER_RETURNS}")),
        (load(str(EXAMPLES / f"{COMPILED}.py")), Candidate(language="cpp", source=compiled)),
    ]


def ask(address: str) -> int:
    """Have candidates judged without end."""
    engine.LOST_PAUSE_S = 0.2
    executor = RayExecutor(f"{address}?device=cpu&judges=1", LIMITS)

    async def ask_for(problem: Problem, candidate: Candidate) -> None:
        for number in itertools.count():
            source = f"{candidate.source}\n# {os.getpid()} {number}"  # nothing is built already
            await executor.evaluate(problem, candidate.model_copy(update={"source": source}))

    async def ask_for_all() -> None:
        await asyncio.gather(*(ask_for(*each) for each in _candidates()))

    with suppress(StarkError):
        asyncio.run(ask_for_all())
    return 1


def _disturbed(kind: str, kills: int, moments: random.Random) -> None:
    """Kill victims of a kind. Raises AssertionError if a process is left."""
    judging, begin = Judging(moments), time.monotonic()
    killed, most, daemons, longest_s = 0, 0, 0, 0.0
    try:
        while killed < kills:
            until, runs = time.monotonic() + READY_S, (_is_confined, _is_daemon)[killed % 2]
            while not judging.busy(runs):
                assert time.monotonic() < until, f"no candidate runs after {READY_S:g} s"
                time.sleep(0.05)
            time.sleep(moments.uniform(*PAUSE_S))
            if busy := judging.busy(runs):
                worker, killed = moments.choice(busy), killed + 1
                below = family([worker])[1:]
                most, daemons = max(most, len(below)), daemons + any(map(_is_daemon, below))
                longest_s = max(longest_s, KINDS[kind](judging, worker))
    finally:
        judging.close()
    took_s = time.monotonic() - begin
    print(
        f"{kind}: {kills} kills in {took_s:.0f} s, {daemons} of them beside a candidate's own process; below a worker "
        f"were up to {most} processes, of which none outlived it for more than {longest_s:.2f} s",
        flush=True,
    )


def main() -> int:
    """Kill victims of each kind; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        return ask(options.ask)
    failed = False
    for kind in options.only:
        try:
            _disturbed(kind, options.kills, random.Random(options.seed))
        except AssertionError as left:
            failed = True
            print(f"{kind}: {left}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
