"""The process with the user's model, as the command line starts it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from region_samples import SHEET

from stark.problems import load
from stark.regions import __main__ as process
from stark.regions.results import Answer

MODEL = """
import torch
from torch import nn

class Slow(nn.Module):
    def forward(self, x):
        for _ in range(6):
            x = torch.sin(x) * 1.01
        return x

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Slow() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def example():
    return torch.ones(64, 64)

def two_cases():
    return [(torch.ones(64, 64),), (torch.ones(8, 64),)]
"""


@pytest.fixture(autouse=True)
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hot_users.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "hot_users", raising=False)
    monkeypatch.setattr("stark.regions.finding.measured", lambda device: SHEET)


def answered(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, Answer]:
    output = folder / "answer.json"
    monkeypatch.setattr(sys, "argv", ["stark.regions", *words, "--output", str(output)])
    code = process.main()
    return code, Answer.model_validate_json(output.read_text())


@pytest.mark.slow
def test_the_best_regions_become_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "problems"
    words = ["find", "hot_users:Model", "--inputs", "hot_users:example"]
    code, answer = answered(
        tmp_path, monkeypatch, *words, "--capture", "1", "--folder", str(folder)
    )

    [captured] = answer.captured
    assert answer.hotspots is not None
    region = captured.region
    assert region in answer.hotspots.regions
    assert 0 == code
    assert ("hot_users:Slow", 3) == (region.name, region.calls)
    assert str(folder / "Slow_1.py") == captured.file
    original = load(captured.file).declared.original
    assert original is not None
    assert "hot_users:Slow" == original.name


def test_each_case_is_part_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, answer = answered(
        tmp_path, monkeypatch, "find", "hot_users:Model", "--inputs", "hot_users:two_cases"
    )

    assert answer.hotspots is not None
    assert {"64x64 fp32", "8x64 fp32"} == {region.form for region in answer.hotspots.regions}


def test_an_error_is_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, answer = answered(
        tmp_path, monkeypatch, "find", "hot_users:Absent", "--inputs", "hot_users:example"
    )

    assert 2 == code
    assert "hot_users has no Absent" in answer.error
    assert answer.hotspots is None
