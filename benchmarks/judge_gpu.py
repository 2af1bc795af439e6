"""Checks the judge on a GPU: status, timing and cost of honest, slow, wrong and hostile candidates.

    python benchmarks/judge_gpu.py --kernelbench PATH/TO/KernelBench [--json FILE]

Judges three KernelBench problems (one per level) with three ways to write a kernel, each correct, slow and wrong; then
every fault of `support.candidates`, each followed by an honest candidate. Exits with 1 if any status is unexpected.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from itertools import product
from pathlib import Path

from versus.cases import Case

from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Evaluation
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import Executor, open_executor
from stark.problems import load
from support.candidates import FAULTS, PROBLEM, as_candidate

PROBLEMS = ("level1/19", "level2/12", "level3/1")
ROUTES = ("triton", "cuda", "load_inline")
VARIANTS = ("correct", "slow", "wrong")


class Table:
    """The rows so far, printed as they arrive."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def add(
        self, problem: str, what: str, expected: str, found: Evaluation, seconds: float
    ) -> None:
        row: dict[str, object] = {
            "problem": problem,
            "candidate": what,
            "status": found.status,
            "expected": expected,
            "seconds": round(seconds, 2),
            "phases": found.seconds,
        }
        if isinstance(found, Correct):
            ratio = found.speedup_vs("eager")
            row |= {
                "latency_ms": round(found.latency_ms, 4),
                "speedup": round(ratio.ratio, 4),
                "low": round(ratio.low, 4),
                "high": round(ratio.high, 4),
                "pairs": len(found.candidate.samples_ms),
                "roofline": found.roofline_fraction,
                "clock": found.candidate.clock,
            }
        else:
            row["evidence"] = str(getattr(found, "error", getattr(found, "phase", "")))[-300:]
        self.rows.append(row)
        good = "ok " if found.status == expected else "BAD"
        shown = " ".join(f"{k}={v}" for k, v in row.items() if k not in ("expected",))
        print(good, shown[:600], flush=True)

    @property
    def faults(self) -> int:
        return sum(row["status"] != row["expected"] for row in self.rows)


async def judge(
    executor: Executor, table: Table, problem: Problem, what: str, candidate: Candidate, status: str
) -> None:
    begin = time.monotonic()
    found = await executor.evaluate(problem, candidate)
    table.add(problem.name, what, status, found, time.monotonic() - begin)


async def kernels(executor: Executor, table: Table, checkout: Path) -> None:
    for spec in PROBLEMS:
        problem = load(spec, checkout)
        begin = time.monotonic()
        reference = await executor.describe(problem)
        print(
            f"-- {problem.name}: ready in {time.monotonic() - begin:.2f} s; eager {reference.eager.latency_ms:.4f} ms; {reference.roofline}"
        )
        waiting = []
        for route, variant in product(ROUTES, VARIANTS):
            case = Case(spec, route, variant)
            one = judge(
                executor, table, problem, f"{route} {variant}", case.candidate, case.expected
            )
            if route == "triton":
                await one
            else:
                waiting.append(one)
        await asyncio.gather(*waiting)  # builds overlap; the device runs one candidate at a time


async def faults(executor: Executor, table: Table) -> None:
    for name, (source, status) in FAULTS.items():
        await judge(executor, table, PROBLEM, name, as_candidate("triton", source), status)
        honest = as_candidate("triton", FAULTS["honest"][0])
        await judge(executor, table, PROBLEM, f"honest after: {name}", honest, "correct")


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--parts", default="kernels,faults")
    options = parser.parse_args()
    table = Table()
    executor = open_executor("local")
    if "kernels" in options.parts:
        await kernels(executor, table, options.kernelbench)
    await executor.close()
    if "faults" in options.parts:
        short = open_executor("local", Limits(build_s=8, verify_s=8, memory_gb=8))
        await faults(short, table)
        await short.close()
    if options.json:
        options.json.write_text(json.dumps(table.rows, indent=1))
    print(f"{len(table.rows) - table.faults} of {len(table.rows)} statuses as expected")
    return 1 if table.faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
