"""Times torch.compile against the candidate made from its generated code, alternately in one CPU process.

Nothing is judged. Two callables in one process share its disturbances, so small differences show, mainly the work
that torch.compile does around its kernels on every call.

    python benchmarks/compiler_start.py --sources FOLDER PROBLEM...
    python benchmarks/compiler_pairs.py FOLDER PROBLEM...
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch

from stark.problems import load

CALLS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", type=Path, metavar="FOLDER")
    parser.add_argument("problems", nargs="+", type=Path, metavar="PROBLEM")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    print("| problem | torch.compile | candidate | ratio | difference |")
    print("|---|---|---|---|---|")
    for path in options.problems:
        candidate = options.sources / f"{load(str(path), None).slug}.py"
        if candidate.exists():
            print(row(path, candidate), flush=True)


def row(path: Path, candidate: Path) -> str:
    problem = imported(path, "problem")
    torch.manual_seed(0)
    model, inputs = problem.Model(*problem.get_init_inputs()), problem.get_inputs()
    ours = imported(candidate, "candidate").ModelNew(*problem.get_init_inputs())
    ours.load_state_dict(model.state_dict())
    programs = [torch.compile(model), ours]
    times_ms: list[list[float]] = [[], []]
    for _ in range(CALLS):
        for program, own in zip(programs, times_ms, strict=True):
            own.append(timed(program, inputs))
    compiled, made = (median(own[10:]) for own in times_ms)
    ratio = median(b / a for a, b in zip(*times_ms, strict=True))
    return f"| {path.stem} | {compiled:.4g} ms | {made:.4g} ms | {ratio:.3f} | {1e3 * (made - compiled):.0f} us |"


def timed(program: Callable[..., Any], inputs: list[Any]) -> float:
    begin = time.perf_counter()
    program(*inputs)
    return 1e3 * (time.perf_counter() - begin)


def imported(path: Path, name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
