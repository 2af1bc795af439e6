"""Judges the kernels of recorded runs again, to see whether a change of the judge changed a verdict.

    python benchmarks/rejudge.py docs/results/cpu/*.json.gz --executor local:cpu
    python benchmarks/rejudge.py docs/results/h200/level*.json.gz --executor local:cuda:0 --kernelbench PATH/TO/KernelBench
    python benchmarks/rejudge.py docs/results/h100/llama*.json.gz --executor local:cuda:0 --problems FOLDER

Every kernel is judged as it was in its run's search, and those of its final check as there. A recording without its
problem's text needs the checkout of KernelBench, or a folder with the captured problem as NAME.py. Prints a line for each kernel; exits 1 if a status differs from the
recorded one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Effort, Evaluation
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import open_executor
from stark.explain.evaluation import evidence
from stark.problems import load
from stark.recorded import Recording, read_recording


@dataclass(frozen=True)
class Judged:
    """A recorded kernel and what its run's judge made of it."""

    name: str
    problem: Problem
    candidate: Candidate
    effort: Effort
    recorded: Evaluation
    limits: Limits


def main() -> int:
    """Judge all, and print what changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--executor", default="local")
    parser.add_argument("--kernelbench", type=Path, help="a checkout, for recordings without text")
    parser.add_argument(
        "--problems", type=Path, help="captured problems, for recordings without text"
    )
    parser.add_argument("--effort", choices=["search", "promote"], help="only these")
    parser.add_argument("--json", type=Path, help="append each kernel's line to this file")
    options = parser.parse_args()
    kernels = [
        kernel
        for path in options.recordings
        for kernel in _kernels(path, options.kernelbench, options.problems)
        if options.effort in (None, kernel.effort)
    ]
    changed = asyncio.run(_judge_all(kernels, options.executor, options.json))
    Console().print(f"{len(kernels)} kernels, {changed} of them with another status than recorded")
    return 1 if changed else 0


def _kernels(path: Path, kernelbench: Path | None, problems: Path | None) -> Iterator[Judged]:
    recording = _whole(read_recording(path), kernelbench, problems)
    run = recording.run
    for node in recording.nodes:
        if node.candidate is None:
            continue
        found: dict[Effort, Evaluation] = {"search": node.evaluation}
        if node.id in recording.promotions:
            found["promote"] = recording.promotions[node.id]
        for effort, recorded in found.items():
            name = f"{path.name.removesuffix('.json.gz')} {node.id}"
            limits = run.config.limits
            yield Judged(name, run.problem, node.candidate, effort, recorded, limits)


def _whole(recording: Recording, kernelbench: Path | None, problems: Path | None) -> Recording:
    if recording.left_out is None:
        return recording
    level, _, rest = recording.run.problem.name.partition("/")
    if problems is not None and not rest:
        return recording.with_problem(load(str(problems / f"{level}.py")))
    return recording.with_problem(load(f"{level}/{rest.split('_')[0]}", kernelbench))


async def _judge_all(kernels: Sequence[Judged], notation: str, file: Path | None) -> int:
    """Judge one after the other, those with the same limits by one judge. Returns how many statuses changed."""
    console, changed = Console(soft_wrap=True), 0
    for limits in {kernel.limits for kernel in kernels}:
        executor = open_executor(notation, limits)
        try:
            for kernel in (each for each in kernels if each.limits == limits):
                begin = time.monotonic()
                now = await executor.evaluate(kernel.problem, kernel.candidate, kernel.effort)
                changed += now.status != kernel.recorded.status
                took_s = time.monotonic() - begin
                console.print(_line(kernel, now, took_s), highlight=False, markup=False)
                if file is not None:
                    _append(file, kernel, now, took_s)
        finally:
            await executor.close()
    return changed


def _line(kernel: Judged, now: Evaluation, took_s: float) -> str:
    said = (
        f"{kernel.name} {kernel.effort}: {_shown(kernel.recorded)} -> {_shown(now)}, {took_s:.1f} s"
    )
    differs = now.status != kernel.recorded.status
    return f"{said}  DIFFERS: {evidence(now)}" if differs else said


def _shown(found: Evaluation) -> str:
    return f"{found.speedup_vs().ratio:.3f}x" if isinstance(found, Correct) else found.status


def _append(file: Path, kernel: Judged, now: Evaluation, took_s: float) -> None:
    line = {
        "kernel": kernel.name,
        "effort": kernel.effort,
        "recorded": _shown(kernel.recorded),
        "now": _shown(now),
        "seconds": round(took_s, 2),
    }
    with file.open("a") as out:
        out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
