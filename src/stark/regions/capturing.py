"""Writes the best regions of a model as problem files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import nn

from stark.capturing.entry import capture
from stark.capturing.recording import Calls
from stark.core.errors import StarkError
from stark.regions.results import Captured, Region


def capture_regions(
    model: nn.Module,
    calls: Calls,
    regions: Sequence[Region],
    most: int,
    folder: Path,
    backward: bool = False,
) -> Iterator[Captured]:
    """Capture regions, the best first, until `most` are files in `folder`. Those that are refused have the reason."""
    written = 0
    for place, region in enumerate(regions):
        if written == most:
            return
        try:
            problem = capture(model.get_submodule(region.module), calls, backward=backward)
        except StarkError as error:
            yield Captured(region=place, refused=str(error))
            continue
        written += 1
        file = folder / f"{region.class_name}_{written}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(problem.source, encoding="utf-8")
        yield Captured(region=place, file=str(file))
