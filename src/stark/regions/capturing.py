"""Writes the best regions of a model as problem files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from stark.core.errors import StarkError
from stark.core.problem import Problem
from stark.regions.results import Captured, Region

Capture = Callable[[nn.Module, Any], Problem]
"""As `stark.capture`: a module and the recorded calls give a problem."""


def capture_regions(
    model: nn.Module,
    calls: Any,
    regions: Sequence[Region],
    most: int,
    folder: Path,
    capture: Capture,
) -> Iterator[Captured]:
    """Capture regions, the best first, until `most` are files in `folder`. Those that are refused have the reason."""
    written = 0
    for place, region in enumerate(regions):
        if written == most:
            return
        try:
            problem = capture(model.get_submodule(region.module), calls)
        except StarkError as error:
            yield Captured(region=place, refused=str(error))
            continue
        written += 1
        name = region.name.rpartition(":")[2].rpartition(".")[2]
        file = folder / f"{name}_{written}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(problem.source, encoding="utf-8")
        yield Captured(region=place, file=str(file))
