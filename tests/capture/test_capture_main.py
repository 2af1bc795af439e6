"""A module is captured by name in a process of its own, and bad input is refused in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ownpkg.block import Block

from stark.capturing.calls.loading import load_module
from stark.regions.__main__ import main
from stark.regions.results import Answer

BAD = {
    "no such package": (
        "nothing.here:Block",
        "x:x",
        "nothing.here cannot be imported (ModuleNotFoundError: No module",
    ),
    "no name": (
        "ownpkg.block",
        "x:x",
        "'ownpkg.block' does not name an object; write package.module:Object",
    ),
    "no such object": ("ownpkg.block:Nothing", "x:x", "ownpkg.block has no Nothing"),
    "no module": ("ownpkg.ops:SCALE", "x:x", "ownpkg.ops:SCALE is a float; name an nn.Module"),
    "no such submodule": (
        "ownpkg.block:Block.nowhere",
        "ownpkg.block:example",
        "ownpkg.block:Block.nowhere: Block has no attribute `nowhere`; name a submodule by its path",
    ),
    "needs arguments": (
        "ownpkg.block:Norm",
        "x:x",
        "ownpkg.block:Norm cannot be made without arguments (TypeError",
    ),
    "no such inputs": ("ownpkg.block:Block", "ownpkg.block:nothing", "ownpkg.block has no nothing"),
    "inputs of another type": (
        "ownpkg.block:Block",
        "ownpkg.ops:SCALE",
        "ownpkg.ops:SCALE gives a float; return a tuple",
    ),
    "inputs that fail": (
        "ownpkg.block:Block",
        "ownpkg.ops:never_called",
        "ownpkg.ops:never_called fails (TypeError",
    ),
    "inputs that do not fit": (
        "torch.nn:Identity",
        "ownpkg.block:example",
        "Identity cannot be called with ownpkg.block:example (TypeError",
    ),
}


def answered(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, Answer]:
    output = folder / "answer.json"
    line = ["stark.regions", "capture", *words, "--output", str(output)]
    monkeypatch.setattr(sys, "argv", line)
    return main(), Answer.model_validate_json(output.read_text())


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, inputs, said = BAD[name]

    code, answer = answered(tmp_path, monkeypatch, module, "--inputs", inputs)

    assert (2, 1) == (code, len(answer.error.splitlines()))
    assert answer.error.startswith(said)


def test_a_module_becomes_a_problem_with_all_its_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["ownpkg.block:training", "--inputs", "ownpkg.block:examples", "--backward"]
    code, answer = answered(tmp_path, monkeypatch, *words)

    assert 0 == code
    assert answer.problem is not None
    assert {"2x16x32", "2x5x32"} == set(answer.problem.declared.cases)
    assert answer.problem.declared.backward
    assert answer.problem.declared.original is not None
    assert answer.problem.declared.original.training


def test_a_factorys_module_is_captured_for_inference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["ownpkg.block:training", "--inputs", "ownpkg.block:example"]
    _, answer = answered(tmp_path, monkeypatch, *words)

    assert answer.problem is not None and answer.problem.declared.original is not None
    assert not answer.problem.declared.original.training


def test_a_submodule_is_named_by_its_path() -> None:
    assert isinstance(load_module("ownpkg.block:Tower.blocks.1"), Block)
    assert not load_module("ownpkg.block:Tower.blocks.1").training
    assert load_module("ownpkg.block:training", backward=True).training
