"""Times programs and identical copies with the usual methods: `other_methods.py JSON`.

Prints one JSON object per program and method. On a GPU the methods are `triton.testing.do_bench` (its median) and
KernelBench's `cuda_event` (its mean of 100, from the `timing.py` of a checkout). Neither runs on a CPU, where the
methods are `torch.utils.benchmark` (its median) and the mean of 100 wall-clock times after 3 warm-up calls, which is
KernelBench's method without a device.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import torch

Program = Callable[[], Any]
Method = Callable[[Program], float]
"""Returns the milliseconds of one call."""


def main() -> None:
    """Time all and print."""
    asked = json.loads(sys.argv[1])
    device = torch.device(asked["device"])
    torch.set_grad_enabled(False)
    methods = on_a_cpu() if device.type == "cpu" else on_a_gpu(device, asked["kernelbench"])
    for size, source in asked["programs"].items():
        reference, candidate = programs(source, device)
        for name, method in methods.items():
            row: dict[str, object] = {"method": name, "size": size}
            try:
                row |= {"reference_ms": method(reference), "candidate_ms": method(candidate)}
            except Exception as error:  # one method's failure is reported; the others continue
                row["failed"] = f"{type(error).__name__}: {error}"[:300]
            print(json.dumps(row), flush=True)


def programs(source: str, device: torch.device) -> tuple[Program, Program]:
    """Two copies of the program with the same inputs."""
    names: dict[str, Any] = {"__name__": "problem"}
    exec(compile(source, "problem", "exec"), names)
    with device:
        inputs = names["get_inputs"]()
    first, second = (names["Model"]().to(device) for _ in range(2))
    return lambda: first(*inputs), lambda: second(*inputs)


def on_a_gpu(device: torch.device, kernelbench: str | None) -> dict[str, Method]:
    """The methods for a GPU; KernelBench's only with a checkout."""
    from triton.testing import do_bench

    torch.cuda.set_device(device)
    methods: dict[str, Method] = {
        "do_bench": lambda program: float(do_bench(program, return_mode="median"))
    }
    if kernelbench is not None:
        path = Path(kernelbench).expanduser() / "src" / "kernelbench" / "timing.py"

        def cuda_event(program: Program) -> float:
            timing = imported(path)
            taken = timing.time_execution_with_cuda_event(
                program, [], num_warmup=3, num_trials=100, verbose=False, device=device
            )
            return float(mean(taken))

        methods["cuda_event"] = cuda_event
    return methods


def on_a_cpu() -> dict[str, Method]:
    """The methods for a CPU."""
    return {"torch.utils.benchmark": torch_benchmark, "mean of 100": mean_of_100}


def torch_benchmark(program: Program) -> float:
    """The median of PyTorch's benchmark timer."""
    from torch.utils.benchmark import Timer

    timer = Timer("program()", globals={"program": program}, num_threads=torch.get_num_threads())
    return 1e3 * float(timer.blocked_autorange(min_run_time=0.2).median)


def mean_of_100(program: Program) -> float:
    """The mean wall-clock time of 100 calls after three warm-up calls."""
    for _ in range(3):
        program()
    taken = []
    for _ in range(100):
        begin = time.perf_counter()
        program()
        taken.append(1e3 * (time.perf_counter() - begin))
    return mean(taken)


@cache
def imported(path: Path) -> Any:
    """Import a module from its file, without its package."""
    specification = importlib.util.spec_from_file_location("kernelbench_timing", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
