"""Counts how often judges prepare a problem, with and without steering requests to judges that have it ready.

    python benchmarks/steering.py [--candidates 10] [--thinking-s 0.05]

Without steering, requests go to the least busy judge, which keeps one problem ready and answers in order. Each search
has one problem and asks for `--candidates` evaluations, one after the other, with a pause between.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from stark.core.problem import Problem
from stark.evaluator import executors
from support import FAKE_JUDGE
from support.candidates import FAULTS, as_candidate

CANDIDATE = as_candidate("triton", FAULTS["honest"][0])
SIZES = ((1, 2), (2, 2), (4, 1), (4, 2), (8, 1), (8, 4))


def main() -> None:
    """Measure all sizes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=10)
    parser.add_argument("--thinking-s", type=float, default=0.05)
    options = parser.parse_args()
    steered = executors.judges.PREPARING
    print("| problems | judges | evaluations | preparations without | with | s without | s with |")
    print("|---|---|---|---|---|---|---|")
    for problems, judges in SIZES:
        found = [
            asyncio.run(_searches(problems, judges, options.candidates, options.thinking_s, weight))
            for weight in (0.0, steered)
        ]
        (before, before_s), (after, after_s) = found
        count = problems * options.candidates
        print(
            f"| {problems} | {judges} | {count} | {before} | {after} | {before_s:.1f} | {after_s:.1f} |"
        )


async def _searches(
    problems: int, judges: int, candidates: int, thinking_s: float, weight: float
) -> tuple[int, float]:
    """The preparations and seconds of these searches; a weight of 0 turns steering off."""
    executors.judges.PREPARING = weight
    options = [] if weight else ["--keeping", "1"]
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        base = [sys.executable, FAKE_JUDGE, *options]
        executor = executors.judges.CommandsExecutor(
            [[*base, f"{folder}/{n}"] for n in range(judges)]
        )

        async def search(problem: Problem) -> None:
            for _ in range(candidates):
                await asyncio.sleep(chance.uniform(0, 2 * thinking_s))
                await executor.evaluate(problem, CANDIDATE)

        begin = time.monotonic()
        named = [Problem(name=f"p{n}", source=f"# {n}\n") for n in range(problems)]
        await asyncio.gather(*map(search, named))
        took_s = time.monotonic() - begin
        await executor.close()
        return _lines_in(Path(folder)), took_s


def _lines_in(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.iterdir())


if __name__ == "__main__":
    main()
