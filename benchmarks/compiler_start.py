"""Compares the first attempt of `--start compiler` with torch.compile.

Each problem's candidate gets the final check (effort `promote`), which times it side by side with `torch.compile`.
A ratio of 1 means the same time.

    python benchmarks/compiler_start.py examples/*.py
    python benchmarks/compiler_start.py --executor local:cuda:0 --language triton PROBLEM...
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from stark.core.errors import CompilerRefused
from stark.core.evaluation import Correct
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import Executor, open_executor
from stark.explain.evaluation import evidence
from stark.problems import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="+", metavar="PROBLEM")
    parser.add_argument("--executor", default="local:cpu")
    parser.add_argument("--language", default="cpp")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="timing budget for each reference"
    )
    parser.add_argument("--sources", type=Path, help="write the candidates to this folder")
    options = parser.parse_args()
    if options.sources is not None:
        options.sources.mkdir(parents=True, exist_ok=True)
    asyncio.run(measure(options))


async def measure(options: argparse.Namespace) -> None:
    executor = open_executor(options.executor, Limits(timing_budget_s=options.seconds))
    print("| problem | lines | time | of torch.compile's time | of eager's time |")
    print("|---|---|---|---|---|")
    try:
        for name in options.problems:
            problem = load(name, None)
            print(await row(executor, problem, options.language, options.sources), flush=True)
    finally:
        await executor.close()


async def row(executor: Executor, problem: Problem, language: str, sources: Path | None) -> str:
    try:
        candidate = await executor.compiled(problem, language)
    except CompilerRefused as refusal:
        return f"| {problem.name} | none | {refusal} | | |"
    if sources is not None:
        (sources / f"{problem.slug}.py").write_text(candidate.source)
    lines = len(candidate.source.splitlines())
    found = await executor.evaluate(problem, candidate, "promote")
    if not isinstance(found, Correct):
        return f"| {problem.name} | {lines} | {found.status}: {evidence(found)} | | |"
    shares = []
    for reference in ("compile", "eager"):
        speedup = found.speedup_vs(reference)
        shares.append(f"{1 / speedup.ratio:.3f} [{1 / speedup.high:.3f}, {1 / speedup.low:.3f}]")
    return f"| {problem.name} | {lines} | {found.latency_ms:.4g} ms | {' | '.join(shares)} |"


if __name__ == "__main__":
    main()
