from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_samples import Stark

from stark.regions.results import Hotspots, Region

MODEL = """
import torch
from torch import nn

print("the user's own output")

class Slow(nn.Module):
    def forward(self, x):
        for _ in range(9):
            x = torch.sin(x) * 1.01
        return x

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Slow() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).clamp(-1, 1)
        return x

def example():
    return torch.ones(64, 64)

def dies():
    import os
    os._exit(3)
"""


@pytest.fixture(autouse=True)
def user_module(workplace: Path) -> None:
    (workplace / "users.py").write_text(MODEL)


@pytest.mark.slow
def test_the_best_regions_are_printed_as_one_document(stark: Stark) -> None:
    ended = stark(
        "hotspots",
        "users:Model",
        "--inputs",
        "users:example",
        "--no-compile",
        "--json",
        "--top",
        "1",
    )

    document = json.loads(ended.out)
    [region] = document["regions"]
    assert set(Hotspots.model_fields) == set(document)
    assert set(Region.model_fields) == set(region)
    assert 0 == ended.code
    assert "users:Model" == document["model"]
    assert ("users:Slow", "layers.0", 3) == (region["name"], region["module"], region["calls"])
    assert region["compiled"] is None
    assert "the user's own output" in ended.err


@pytest.mark.slow
def test_a_process_that_dies_is_reported(stark: Stark) -> None:
    ended = stark("hotspots", "users:dies", "--inputs", "users:example")

    assert 2 == ended.code
    assert "error: the process that runs users:dies ended with code 3" in ended.err


@pytest.mark.usefixtures("model_here")
def test_a_model_that_cannot_be_loaded_is_one_sentence(stark: Stark) -> None:
    ended = stark("hotspots", "users:Absent", "--inputs", "users:example")

    assert (
        2,
        "error: users has no Absent; define it there, or name another object as package.module:Object",
    ) == (
        ended.code,
        ended.err.splitlines()[-1],
    )


def test_inputs_are_required(stark: Stark) -> None:
    ended = stark("hotspots", "users:Model")

    assert (2, "error: name the inputs of users:Model: --inputs package.module:example\n") == (
        ended.code,
        ended.err,
    )
