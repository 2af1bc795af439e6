"""Evaluates the same candidates with KernelBench's own evaluation and with STARK's judge on one device.

    python benchmarks/evaluator.py --kernelbench PATH/TO/KernelBench --json evaluator.json --minutes 9

The judge runs twice with an empty build cache: once with all candidates requested at once, as a search does, and once
one after the other. KernelBench's `eval_kernel_against_ref` then evaluates them one after the other, each in its own
process, as its `scripts/eval_from_generations.py` does (see `versus/theirs.py`). Imports and process starts are excluded
for both; preparing a problem and building are included for both.

After `--minutes` the tables are printed; the same command with the same file continues. `--large` compares only
problems with inputs over 1 GiB; give it its own file. `--passes none` prints the tables of the file. All passes take
about 17 minutes on an H200, mostly for KernelBench.

On a CPU only the judge runs, on C++ candidates for smaller problems, because KernelBench needs CUDA. Exits with 1 if
the judge's verdict differs from the expected one, or the two disagree on whether a candidate is correct.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from versus import ours, theirs
from versus.cases import Case, cases
from versus.results import Results, read
from versus.tables import LARGE_BYTES, pairs, report

from stark.core.problem import Problem

PASSES = ("together", "alone", "theirs")


def main() -> int:
    """Evaluate candidates that have no verdict yet, then print all tables."""
    options = _options()
    deadline = time.monotonic() + 60 * options.minutes
    chosen = [case for case in cases(options.device) if fnmatch(str(case), f"*{options.only}*")]
    results = read(options.json)
    results.machine = results.machine or machine(options.device)
    problems = {case.spec: case.problem(options.kernelbench, options.device) for case in chosen}
    results.large = {spec: input_bytes(one) > LARGE_BYTES for spec, one in problems.items()}
    if options.large:
        chosen = [case for case in chosen if results.large[case.spec]]
    print(f"{len(chosen)} candidates on {results.machine}", flush=True)
    try:
        for name in PASSES:
            if name in options.passes:
                _pass(name, options, results, chosen, problems, deadline)
    finally:
        print(f"\n{report(results, chosen)}", flush=True)
    return _exit_code(results, chosen)


def _pass(
    name: str,
    options: argparse.Namespace,
    results: Results,
    chosen: Sequence[Case],
    problems: Mapping[str, Problem],
    deadline: float,
) -> None:
    if name == "together":
        asyncio.run(ours.together(options.device, results, chosen, problems, options.effort))
    elif name == "alone":
        asyncio.run(ours.alone(options.device, results, chosen, problems, options.effort, deadline))
    elif options.device == "cpu":
        results.note("theirs: KernelBench needs CUDA")
    else:
        theirs.judge(options.kernelbench, options.device, results, chosen, problems, deadline)


def input_bytes(problem: Problem) -> int:
    """The size of `get_inputs()` in bytes, computed without allocating it."""
    names: dict[str, Any] = {"__name__": "problem"}
    with torch.device("meta"):
        exec(compile(problem.source, problem.name, "exec"), names)
        inputs = names["get_inputs"]()
    return sum(each.numel() * each.element_size() for each in inputs if torch.is_tensor(each))


def machine(device: str) -> str:
    """The device and the versions, as one line."""
    python = f"Python {platform.python_version()}, torch {torch.__version__}"
    today = datetime.date.today().isoformat()
    if device == "cpu":
        return f"{os.cpu_count()} cores, {python}, {today}"
    name = torch.cuda.get_device_name(torch.device(device))
    return f"{name}, {os.cpu_count()} cores, {python}, CUDA {torch.version.cuda}, {today}"


def _exit_code(results: Results, chosen: Sequence[Case]) -> int:
    wrong = [
        case
        for kind in ("together", "alone")
        for case in chosen
        if results.judged(kind).get(str(case)) is not None
        and results.judged(kind)[str(case)].verdict != case.expected
    ]
    return int(bool(wrong) or not all(pair.agree for pair in pairs(results, chosen)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernelbench", type=Path, required=True, help="a checkout")
    parser.add_argument("--device", default="cuda:0", help="cuda:0 (default), or cpu")
    parser.add_argument(
        "--json", type=Path, help="file for the findings; an existing file is continued"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="start nothing after this time")
    parser.add_argument("--only", default="", metavar="PATTERN", help="such as `level2*triton`")
    parser.add_argument("--large", action="store_true", help="only problems with large inputs")
    parser.add_argument("--effort", choices=("search", "promote"), default="search")
    parser.add_argument(
        "--passes",
        type=lambda text: text.split(","),
        default=list(PASSES),
        help="together,alone,theirs (default all); none prints the tables of the file",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
