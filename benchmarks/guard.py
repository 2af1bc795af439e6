"""Measures what the guard of an applied kernel adds to a call, in microseconds.

    OMP_NUM_THREADS=1 python benchmarks/guard.py

The module takes four tensors and has ten parameters. Its kernel returns an input, so that a call costs little else. The
guard's time is that of the guarded forward without that of the kernel's own (or the original's) forward. The least of
many repeats counts, since other programs only add time. Exits with 1 if a limit is missed.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from stark.deploy import guard
from stark.deploy.bound import GRADIENTS

LIMITS_US = {"inference": 5.0, "gradients": 12.0}
REPEATS, CALLS = 60, 2000

MODEL = """import torch
from torch import nn

BACKWARD = {backward}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o, self.up = (nn.Linear(8, 8) for _ in range(5))
        self.train(False)

    def forward(self, x, mask, cos, sin):
        return x


def get_inputs():
    return [torch.randn(1, 16, 8), torch.ones(1, 1, 16, 16), torch.randn(1, 16, 8), torch.randn(1, 16, 8)]


def get_init_inputs():
    return []
"""


def bound(backward: bool) -> tuple[nn.Module, guard.Applied]:
    """A module with a kernel."""
    source = MODEL.format(backward=backward)
    scope: dict[str, Any] = {"__name__": "benchmark"}
    exec(source.replace("Model(", "ModelNew("), scope)
    kernel = guard.Kernel(
        scope["ModelNew"],
        source,
        name=f"guard_benchmark_{backward}",
        device="cpu",
        architecture=platform.machine(),
    )
    module = kernel.reference.Model()
    return module, guard.apply(module, kernel, [""])


def least_us(call: Callable[[], object]) -> float:
    """The least time of a call in microseconds, over many repeats."""
    found = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append(time.perf_counter() - begin)
    return 1e6 * min(found) / CALLS


def rows() -> list[tuple[str, str, float]]:
    """The kind of limit, what is called, and the guard's time."""
    inputs = [torch.randn(1, 16, 8), torch.ones(1, 1, 16, 16), *torch.randn(2, 1, 16, 8).unbind()]
    found = []

    def measure(limit: str, name: str, module: nn.Module, direct: Callable[..., object]) -> None:
        guarded = module.forward
        added = least_us(lambda: guarded(*inputs)) - least_us(lambda: direct(*inputs))
        found.append((limit, name, added))

    module, applied = bound(backward=False)
    [each] = applied.bound.values()
    with torch.no_grad():
        measure("inference", "kernel, no_grad", module, each.shell.run)
    with torch.inference_mode():
        measure("inference", "kernel, inference_mode", module, each.shell.run)
    own = each.parts.original.__get__(module)
    measure("gradients", "original, since gradients are not verified", module, own)
    trained, applied = bound(backward=True)
    [other] = applied.bound.values()
    measure("gradients", "kernel with a verified backward pass", trained, other.shell.run)
    assert other.calls and each.calls and GRADIENTS in each.counts
    inputs[0] = inputs[0][:, :8]
    with torch.no_grad():
        measure("", "original, since a shape differs", module, own)
    return found


def main() -> int:
    """Measure and print."""
    torch.set_num_threads(1)
    missed = False
    print(f"| call (4 tensors, 10 parameters, torch {torch.__version__}) | guard, µs | limit, µs |")
    print("|---|---|---|")
    for kind, name, took in rows():
        limit = LIMITS_US.get(kind)
        missed |= limit is not None and took > limit
        print(f"| {name} | {took:.2f} | {limit or ''} |")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
