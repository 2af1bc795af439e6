"""Shows where the seconds of `--counters` go, on a machine with a GPU and Nsight Compute.

    python benchmarks/counters.py
    python benchmarks/counters.py --device cpu  # the program alone

First, what a judge needs for the tool: for a first candidate, for another one at once, and for one after a pause.
Then each step of the program that the tool runs, alone and under the tool, with both ways to exit. It runs without a
sandbox there. Times are in seconds. The steps before the request are done ahead, while a candidate is built and verified.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import devices

from stark.core.candidate import Candidate
from stark.core.evaluation import Correct
from stark.core.judging import Limits, Tools
from stark.evaluator.executors import open_executor
from stark.languages import language

PAUSE_S = 6.0
"""Seconds after which the tool's next process has imported everything."""

STEPS = "_open import_file _built _arguments _lock give_weights _warm_up _profiled_call".split()
"""Functions of the program, in the order of their first calls."""

ON_CPU = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0
"""

WAYS = {
    "alone, first": (False, True),  # it fills Triton's cache, as a candidate's verification does
    "alone": (False, True),
    "tool": (True, True),
    "tool, exits with cleanup": (True, False),
}
"""Whether it runs under the tool, and whether it exits without cleaning up."""


def main() -> None:
    """Print what a judge needs, then a row for each step of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rows", type=int, default=2048, help="rows of 4096 elements")
    parser.add_argument("--program", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        _program(*options.program)
        return
    on_gpu = options.device != "cpu"
    if on_gpu:
        asyncio.run(_judge(options.device, options.rows))
    with tempfile.TemporaryDirectory() as folder:
        for name, (tool, abrupt) in WAYS.items():
            if on_gpu or not tool:
                print(f"-- {name}", flush=True)
                _run(Path(folder), options.device, options.rows, tool, abrupt)


async def _judge(device: str, rows: int) -> None:
    """Judge candidates with counters, and print the phase `tools` of each."""
    problem = devices.PROBLEMS[0].model_copy(update={"source": devices.PROBLEM.format(rows=rows)})
    executor = open_executor(f"local:{device}", Limits(), Tools(counters=True))
    try:
        await executor.describe(problem)
        for number, (when, pause_s) in enumerate(
            {"first": 0.0, "at once": 0.0, "after a pause": PAUSE_S}.items()
        ):
            await asyncio.sleep(pause_s)
            candidate = Candidate(language="triton", source=devices.KERNEL.format(number=number))
            found = await executor.evaluate(problem, candidate)
            if not isinstance(found, Correct) or not (found.profile and found.profile.counters):
                raise SystemExit(f"there are no counters: {found}")
            all_s = sum(found.seconds.values())
            print(f"{when}: tools {found.seconds['tools']:.2f} of {all_s:.2f} s", flush=True)
    finally:
        await executor.close()


def _run(folder: Path, device: str, rows: int, tool: bool, abrupt: bool) -> None:
    """Run the program once, and print its steps and what the tool says about kernels."""
    from stark.evaluator.judge.tools.counters import WARM, command

    written_in = language("triton" if device != "cpu" else "pytorch")
    work, log = folder / "work", folder / "log"
    work.mkdir(exist_ok=True)
    problem, candidate, request = (
        folder / name for name in ("problem.py", "candidate.py", "asked")
    )
    problem.write_text(devices.PROBLEM.format(rows=rows))
    candidate.write_text(devices.KERNEL.format(number=0) if device != "cpu" else ON_CPU)
    request.unlink(missing_ok=True)
    asked = {
        "problem": str(problem),
        "program": str(candidate),
        "device": device,
        "memory_fraction": 0.9,
        "seed": 0,
        "warm": WARM,
        "gradients": None,
        "cotangents": [],
        "guarded": False,
        "abrupt": abrupt,
        "layers": [],
        "folder": str(work),
        "scratch": str(folder),
        "environment": written_in.environment(work, None),
    }
    begin = time.time()
    tool_line = [*(command(log) if tool else ()), sys.executable, __file__, "--program"]
    running = subprocess.Popen(
        [*tool_line, str(request), str(begin), *written_in.preload],
        stdout=subprocess.PIPE,
        text=True,
    )
    while not request.with_suffix(".ready").exists() and running.poll() is None:
        time.sleep(0.005)
    request.with_suffix(".ready").unlink(missing_ok=True)
    _show("ready for a request", time.time() - begin)
    begin = time.time()
    part = request.with_suffix(".part")
    part.write_text(json.dumps(asked))
    part.rename(request)
    assert running.stdout is not None
    for line in running.stdout:
        print(line, end="")
        last = float(line.rpartition(" at ")[2]) if " at " in line else begin
    running.wait()
    _show("from the last step to the tool's end" if tool else "exit", time.time() - last)
    _show("from the request to the end", time.time() - begin)
    if tool:
        print("\n".join(line for line in log.read_text().splitlines() if " passes" in line))


def _program(request: str, begin: str, *modules: str) -> None:
    """Run the program with a line for each step. This process is the one that the tool starts."""
    _show("interpreter, and imports of this script", time.time() - float(begin))
    _timed("import torch", __import__)("torch")
    from stark.evaluator.candidate import program, under_tool

    for module in modules:
        _timed(f"import {module}", program.import_ahead)([module])
    for name in STEPS:
        setattr(under_tool, name, _timed(name.strip("_"), getattr(under_tool, name)))
    sys.argv = [under_tool.__file__, request]
    under_tool.main()


def _timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*given: Any) -> Any:
        begin = time.time()
        try:
            return function(*given)
        finally:
            end = time.time()
            print(f"{end - begin:8.3f}  {name} at {end:.3f}", flush=True)

    return timed


def _show(name: str, seconds: float) -> None:
    print(f"{seconds:8.3f}  {name}", flush=True)


if __name__ == "__main__":
    main()
