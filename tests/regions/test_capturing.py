from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from stark.capturing.calls.recording import Calls
from stark.core.errors import ProblemError
from stark.core.problem import Problem
from stark.regions.capturing import capture_regions
from support.regions import region


def test_the_best_regions_become_files_and_the_next_replace_those_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("linear", "hooked", "norm", "rest")
    model = nn.ModuleDict({name: nn.Linear(1, 1) for name in names})

    recorded = Calls(model)

    def capture(module: nn.Module, calls: Calls, backward: bool) -> Problem:
        assert recorded is calls
        if module is model["hooked"]:
            raise ProblemError("it has a hook")
        return Problem(name="any", source=f"# {module}")

    regions = [region(name) for name in names]
    monkeypatch.setattr("stark.regions.capturing.capture", capture)
    first, refused, second = capture_regions(model, recorded, regions, 2, tmp_path / "problems")

    assert ("hooked", None, "it has a hook") == (
        refused.region.module,
        refused.file,
        refused.refused,
    )
    assert ["linear", "norm"] == [first.region.module, second.region.module]
    assert str(tmp_path / "problems" / "Linear_1.py") == first.file
    assert str(tmp_path / "problems" / "Norm_2.py") == second.file
    assert first.file is not None
    assert "# Linear" in Path(first.file).read_text()
