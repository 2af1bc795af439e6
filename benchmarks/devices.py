"""Measures how many candidates per minute one and several GPUs of a host judge: eight problems, 32 requests at a time.

    python benchmarks/devices.py local:cuda:0 local:cuda:0,cuda:1
    python benchmarks/devices.py "ray:?judges=1" "ray:?judges=2"

Each candidate is another Triton kernel, so none is answered from a cache. The first five candidates of each problem, during
which judges prepare their problems and take over some of each other's, are not counted. `--repeat` takes the executors by turns, so that a change of the host's load
meets all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import Counter

from stark.core.candidate import Candidate
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import open_executor
from stark.evaluator.executors.judges import JudgesExecutor

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0


def get_inputs():
    return [torch.randn({rows}, 4096)]


def get_init_inputs():
    return []
"""

KERNEL = '''
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Number {number}."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
'''

PARALLEL, WARM = 32, 5
PROBLEMS = [
    Problem(name=f"rows{rows}", source=PROBLEM.format(rows=rows))
    for rows in range(1024, 9216, 1024)
]


def main() -> None:
    """Print a line for each executor and repetition, then the ratios to the first executor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("executors", nargs="+")
    parser.add_argument("--candidates", type=int, default=96, help="counted ones, in all")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {notation: [] for notation in options.executors}
    for _ in range(options.repeat):
        for notation, found in rates.items():
            found.append(asyncio.run(_rate(notation, options.candidates)))
            print(f"{notation}: {found[-1]:.1f} candidates per minute", flush=True)
    first = statistics.median(rates[options.executors[0]])
    for notation, found in rates.items():
        print(f"{notation}: {statistics.median(found) / first:.2f} times {options.executors[0]}")


async def _rate(notation: str, candidates: int) -> float:
    """Candidates per minute, from the last answer of the first round to the last counted one.

    All slots are full throughout: as many requests as there are slots follow, and are abandoned at the end.
    """
    executor = open_executor(notation, Limits())
    assert isinstance(executor, JudgesExecutor)
    first, counted = WARM * len(PROBLEMS), candidates // len(PROBLEMS) * len(PROBLEMS)
    slots = asyncio.Semaphore(PARALLEL)
    answered: list[float] = []
    phases: Counter[str] = Counter()
    prepared: list[list[int]] = []

    async def judged(number: int) -> None:
        problem = PROBLEMS[number % len(PROBLEMS)]
        source = KERNEL.format(number=number)
        async with slots:
            found = await executor.evaluate(problem, Candidate(language="triton", source=source))
        if found.status != "correct":
            raise SystemExit(f"{problem.name} is {found.status}: the figures would mean nothing")
        answered.append(time.monotonic())
        if first < len(answered) <= first + counted:
            phases.update(found.seconds)
        if len(answered) in (first, first + counted):
            prepared.append([len(judge.kept) for judge in executor._judges])

    try:
        await executor.hellos()  # all are ready before the first request
        asked = [asyncio.create_task(judged(n)) for n in range(first + counted + PARALLEL)]
        for each in asyncio.as_completed(asked):
            await each
            if len(answered) >= first + counted:
                break
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        shares = {phase: round(seconds / counted, 2) for phase, seconds in phases.items()}
        print(f"{notation}: seconds of a candidate by phase: {shares}", flush=True)
        print(
            f"{notation}: problems prepared by each judge before and after: {prepared}", flush=True
        )
        return 60 * counted / (answered[first + counted - 1] - answered[first - 1])
    finally:
        await executor.close()


if __name__ == "__main__":
    main()
