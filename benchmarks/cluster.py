"""Measures what scheduling costs in a Ray cluster: many actors with scripted judges, which need no processor themselves.

python benchmarks/cluster.py --judges 64 --judging-s 2 --rounds 10
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time

from stark.core.problem import Problem
from stark.evaluator.executors.cluster import RayExecutor
from stark.evaluator.executors.engine import ray
from support import FAKE_JUDGE
from support.candidates import FAULTS, as_candidate


def main() -> None:
    """Start a cluster, have candidates judged and print the share of the judges' time that was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judges", type=int, default=64)
    parser.add_argument("--judging-s", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=10, help="candidates for each judge")
    parser.add_argument("--problems", type=int, default=8)
    options = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray().init(num_cpus=options.judges, include_dashboard=False, log_to_driver=False)
    asyncio.run(_measure(options.judges, options.judging_s, options.rounds, options.problems))
    ray().shutdown()


async def _measure(judges: int, judging_s: float, rounds: int, problems: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scripted = [sys.executable, FAKE_JUDGE, f"{folder}/notes", "--preparing-s", "0"]
        executor = RayExecutor(
            f"?device=cpu&judges={judges}", command=[*scripted, "--judging-s", str(judging_s)]
        )
        begin = time.monotonic()
        ready = await executor.hellos()
        print(f"{len(ready)} judges were ready after {time.monotonic() - begin:.1f} s")
        named = [Problem(name=f"p{n}", source=f"# {n}\n") for n in range(problems)]
        candidates = [
            as_candidate("triton", f"{FAULTS['honest'][0]}\n# {n}") for n in range(judges * rounds)
        ]
        waits = asyncio.Semaphore(2 * judges)  # a search keeps more candidates than judges waiting

        async def judged(number: int) -> None:
            async with waits:
                await executor.evaluate(named[number % problems], candidates[number])

        begin, busy_s = time.monotonic(), time.process_time()
        await asyncio.gather(*map(judged, range(len(candidates))))
        busy_s = time.process_time() - busy_s
        took_s, least_s = time.monotonic() - begin, rounds * judging_s
        print(
            f"{len(candidates)} candidates in {took_s:.2f} s; at least {least_s:.2f} s; "
            f"lost to scheduling: {took_s / least_s - 1:.1%}; "
            f"{1000 * busy_s / len(candidates):.1f} ms of the driver's processor each"
        )
        await executor.close()


if __name__ == "__main__":
    main()
