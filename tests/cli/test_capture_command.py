"""`stark capture`, `stark optimize` and `stark evaluate` take modules of the user's own package."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_samples import GOOD, Stark, candidate_source

from stark.core.declared import Original
from stark.problems import load
from stark.regions.asking import is_object
from support.executor import FakeExecutor

pytest.importorskip("torch")

BLOCK = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        print("made")
        self.linear = nn.Linear(4, 4)

    def forward(self, x, scale):
        return self.linear(x) * scale

def example():
    return (torch.randn(2, 4),), {"scale": 2.0}

def factory():
    return Block().train()

net = Block().train()

def other():
    return 3
"""


@pytest.fixture(autouse=True)
def package(workplace: Path) -> None:
    (workplace / "mypkg").mkdir()
    (workplace / "mypkg" / "block.py").write_text(BLOCK)


def test_names_of_objects_are_told_from_files(workplace: Path) -> None:
    assert is_object("mypkg.block:Block")
    assert not is_object("mypkg/block.py")
    assert not is_object("level1/23")


@pytest.mark.slow
def test_capture_writes_a_problem(stark: Stark, workplace: Path) -> None:
    ended = stark(
        "capture", "mypkg.block:Block", "--inputs", "mypkg.block:example", "--output", "problem2.py"
    )

    assert (0, "made\nmade\n") == (ended.code, ended.err)
    original = load("problem2.py").declared.original
    assert isinstance(original, Original)
    assert ("mypkg.block:Block", {"scale": "2.0"}) == (original.name, original.constants)


@pytest.mark.usefixtures("model_here")
def test_bad_inputs_end_with_2(stark: Stark) -> None:
    ended = stark("capture", "mypkg.block:Block", "--inputs", "mypkg.block:other")

    assert (2, "") == (ended.code, ended.out)
    assert "error: mypkg.block:other gives a int" in ended.err


@pytest.mark.usefixtures("model_here")
def test_evaluate_takes_a_module(stark: Stark, executor: FakeExecutor, workplace: Path) -> None:
    (workplace / "kernel.py").write_text(candidate_source(GOOD))

    ended = stark("evaluate", "mypkg.block:Block", "kernel.py", "--inputs", "mypkg.block:example")

    assert 0 == ended.code, ended.err


@pytest.mark.usefixtures("model_here")
def test_optimize_takes_a_module(stark: Stark, executor: FakeExecutor) -> None:
    options = ("--model", "exec:sh model.sh", "--attempts", "1", "--language", "cpp")

    ended = stark("optimize", "mypkg.block:Block", "--inputs", "mypkg.block:example", *options)

    assert "block" in ended.out, ended.err


def test_inputs_are_asked_for_and_refused_for_files(stark: Stark) -> None:
    assert "--inputs package.module:example" in stark("optimize", "mypkg.block:Block").err
    assert "has its own get_inputs" in stark("optimize", "problem.py", "--inputs", "a:b").err
    forgotten = stark("optimize", "mypkg.block", "--inputs", "mypkg.block:example").err
    assert "mypkg.block names no object: with --inputs, write package.module:Object" in forgotten


@pytest.mark.slow
def test_training_mode_is_printed_once(stark: Stark) -> None:
    named = stark("capture", "mypkg.block:net", "--inputs", "mypkg.block:example")

    assert "mode: train(): kernels are verified for that mode only" in named.err
    assert "ModeWarning" not in named.err


@pytest.mark.usefixtures("model_here")
def test_what_a_function_makes_is_in_training_mode_for_gradients_only(
    stark: Stark, executor: FakeExecutor
) -> None:
    options = ("--model", "exec:sh model.sh", "--attempts", "1", "--language", "cpp")
    optimize = ("optimize", "mypkg.block:factory", "--inputs", "mypkg.block:example", *options)

    made = stark(*optimize)
    trained = stark(*optimize, "--backward")

    assert "mode: train()" not in made.out
    assert "mode: train()" in trained.out
