"""Small models with hot spots that are known beforehand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from stark.core.device import Device
from stark.regions.finding import Finder
from stark.regions.results import Hotspots
from stark.regions.workload import device_of, steps_of

SHEET = Device(
    kind="cpu",
    name="a CPU",
    architecture="x86_64",
    processors=1,
    memory_gb=8,
    last_level_cache_mb=8,
    bandwidth_gb_s=20.0,
    peak_tflop_s={"fp32": 0.1, "fp64": 0.05, "bf16": 0.1},
)
"""Not measured, so that tests are quick."""


def find(
    model: nn.Module,
    run: Callable[[], object] | None = None,
    calls: Any = None,
    compile_top: int = 0,
    compile_s: float = 60.0,
) -> Hotspots:
    """As `stark.hotspots`, on a device with known limits."""
    steps = steps_of(model, calls, run)
    return Finder(model, steps, device_of(model), SHEET).find(compile_top, compile_s)


def without_gradients(model: nn.Module, *args: Any, **kwargs: Any) -> Callable[[], object]:
    """A run of the model."""
    return functools.partial(torch.no_grad()(model), *args, **kwargs)


def long_code(statement: str, times: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of that many lines, since the operators of a loop count once."""
    lines = "\n".join(f"    {statement}" for _ in range(times))
    found: dict[str, Any] = {"torch": torch}
    exec(f"def run(x):\n{lines}\n    return x", found)
    return found["run"]


SINES = long_code("x = torch.sin(x) * 1.01", 8)
CLAMPS = long_code("x = x.clamp(-10, 10)", 50)
MANY_SINES = long_code("x = torch.sin(x)", 70)
SUMS = long_code("x = x + 1", 61)


class Slow(nn.Module):
    """Sixteen elementwise operators on a large tensor: by far its model's hot spot."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return SINES(x)


class Looped(nn.Module):
    """A loop over experts: many operators, and little code."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Parameter(torch.randn(32, 16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for expert in self.experts:
            total = total + torch.relu(x @ expert)
        return total


class Scaled(nn.Module):
    """Two operators."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1) * self.scale


class Dominated(nn.Module):
    """A model with one obvious hot spot."""

    def __init__(self) -> None:
        super().__init__()
        self.before = Scaled()
        self.slow = Slow()
        self.after = Scaled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        x = CLAMPS(x)  # too many operators for one region
        return self.after(self.slow(x.repeat(32, 1))[: len(x)])


class Stages(nn.Module):
    """Two containers of three equal blocks each."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Sequential(*(nn.Sequential(Scaled(), Slow()) for _ in range(3))) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


class Functional(nn.Module):
    """Most of the time is spent in functions, with too many operators for one region."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = Scaled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return MANY_SINES(self.scaled(x))


class Decoder(nn.Module):
    """As a language model: a long first step, then many short ones with a mask that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Scaled()

    def forward(self, x: torch.Tensor, mask: torch.Tensor, start: int) -> torch.Tensor:
        return self.block(SUMS(x)) + mask.sum() + start

    def generate(self, x: torch.Tensor, steps: int) -> torch.Tensor:
        with torch.no_grad():
            self(x, torch.ones(len(x)), 0)
            for step in range(steps):
                x = self(x[:1], torch.ones(step + 2), step)
        return x
