from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from stark.core.errors import UsageError
from stark.regions.loading import load_inputs, load_model, run_of

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, scale=2):
        return x * scale

class Sized(nn.Linear):
    pass

def built():
    return Model()

made = Model()
alone = torch.ones(2)
positional = (torch.ones(2), 3)
named = {"x": torch.ones(2), "scale": 4}
both = ((torch.ones(2),), {"scale": 5})

def function():
    return both

class Nested:
    model = Model()

def fails():
    raise ValueError("no weights")
"""


@pytest.fixture(autouse=True)
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "users.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users", raising=False)


@pytest.mark.parametrize(
    ("name", "training"),
    [("Model", False), ("built", True), ("made", True), ("Nested.model", True)],
)
def test_a_model_is_a_class_a_function_or_a_module(name: str, training: bool) -> None:
    model = load_model(f"users:{name}")

    assert "Model" == type(model).__name__
    assert training is model.training


@pytest.mark.parametrize(
    ("name", "scale"), [("alone", 2), ("positional", 3), ("named", 4), ("both", 5), ("function", 5)]
)
def test_inputs_have_four_forms(name: str, scale: int) -> None:
    result: Any = run_of(load_model("users:Model"), f"users:{name}")()

    assert torch.equal(scale * torch.ones(2), result)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("users", "'users' names nothing; write package.module:name"),
        ("absent:Model", "absent cannot be imported: ModuleNotFoundError"),
        ("users:Absent", "users has no Absent"),
        ("users:alone", "users:alone gives a Tensor; name a module"),
        ("users:Sized", "users:Sized cannot be called without arguments: TypeError"),
        ("users:fails", "users:fails cannot be called without arguments: ValueError: no weights"),
        ("users:function", "users:function gives a tuple; name a module"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_model(name)


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="Model fails with the inputs users:Model: TypeError"):
        run_of(load_model("users:Model"), "users:Model")
    with pytest.raises(UsageError, match="users has no wrong"):
        load_inputs("users:wrong")
