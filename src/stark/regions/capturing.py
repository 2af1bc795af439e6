"""Writes the best regions of a model as problem files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from stark.capturing.calls.recording import Calls
from stark.capturing.entry import capture
from stark.core.errors import StarkError
from stark.regions.results import Captured, Region


def capture_regions(
    model: nn.Module,
    calls: Calls,
    regions: Sequence[Region],
    most: int,
    folder: str | Path = ".stark/problems",
    backward: bool = False,
) -> list[Captured]:
    """Capture the best regions as problem files, for `stark.optimize_regions`.

    ```python
    found = stark.hotspots(model, calls)
    captured = stark.capture_regions(model, calls, found.regions, most=2)
    ```

    Args:
        model: The model of which the regions are.
        calls: What `stark.recording` recorded of it.
        regions: The regions of `stark.hotspots`, the best first.
        most: Regions that are refused are skipped, until so many are captured.
        folder: Where the files are written.
        backward: Whether kernels are verified and timed with gradients.

    Returns:
        The regions up to the last captured one, each with its `file` or with the reason why it was `refused`.

    Raises OSError if a file cannot be written.
    """
    found: list[Captured] = []
    written = 0
    for region in regions:
        if written == most:
            break
        try:
            problem = capture(model.get_submodule(region.module), calls, backward=backward)
        except StarkError as error:
            found.append(Captured(region=region, refused=str(error)))
            continue
        written += 1
        file = Path(folder) / f"{region.class_name}_{written}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(problem.source, encoding="utf-8")
        found.append(Captured(region=region, file=str(file)))
    return found
