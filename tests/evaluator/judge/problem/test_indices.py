"""Which integers and masks are drawn anew, and how far indices may go."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from stark.core.problem import Problem
from stark.evaluator.judge.problem.indices import drawn_anew, free
from stark.evaluator.judge.problem.inputs import Program

SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5000, 8)

    def forward(self, x):
        {body}

def get_inputs():
    return [{drawn}]

def get_init_inputs():
    return []
"""


def found(body: str, drawn: str, folder: Path) -> dict[int, int]:
    source = SOURCE.format(body=body, drawn=drawn)
    program = Program(Problem(name="p", source=source), folder, torch.device("cpu"))
    return free(program, program.draw(1), program.draw(2))


@pytest.mark.parametrize(
    ("body", "below"),
    [
        ("return self.table(x)", 5000),
        ("return self.table(x.int().view(4, -1))", 5000),
        ("return self.table.weight[x.clone() + 0 * x] + self.table.weight[x]", 5000),
        ("return self.table.weight.index_select(0, x)", 5000),
        ("return self.table(x) + self.table.weight[:300][x]", 300),
        ("return self.table.weight[:, :1].expand(-1, 64).gather(0, x.view(-1, 64))", 5000),
        ("return nn.functional.cross_entropy(torch.ones(64, 700), x)", 700),
    ],
)
def test_an_index_may_be_as_large_as_the_tables_allow(
    body: str, below: int, tmp_path: Path
) -> None:
    assert {0: below} == found(body, "torch.randint(0, 100, (64,))", tmp_path)


@pytest.mark.parametrize(
    "drawn",
    [
        "torch.arange(64)",  # the same in every draw
        "torch.randint(0, 100, (64,)).sort().values",
        "torch.randperm(64)",
    ],
)
def test_numbers_in_order_and_those_that_occur_once_are_kept(drawn: str, tmp_path: Path) -> None:
    assert {} == found("return self.table(x)", drawn, tmp_path)


def test_lengths_are_kept_because_nothing_says_how_long_they_may_be(tmp_path: Path) -> None:
    body = "return (torch.arange(100) < x[:, None]).float()"

    assert {} == found(body, "torch.randint(0, 100, (64,))", tmp_path)


def test_masks_are_drawn_anew_unless_they_are_prefixes(tmp_path: Path) -> None:
    body = "return torch.where(x, 1.0, 2.0)"

    assert {0: 2} == found(body, "torch.rand(8, 64) < 0.9", tmp_path)
    lengths = "torch.arange(64) < torch.randint(1, 64, (8, 1))"
    assert {} == found(body, lengths, tmp_path)


def test_other_values_have_the_same_form_and_the_whole_range(tmp_path: Path) -> None:
    source = SOURCE.format(body="return self.table(x)", drawn="torch.randint(0, 9, (400,)).int()")
    program = Program(Problem(name="p", source=source), tmp_path, torch.device("cpu"))
    drawn = program.draw(1).tensors[0]

    numbers = drawn_anew(drawn, 5000, 3)

    assert (drawn.shape, torch.int32) == (numbers.shape, numbers.dtype)
    assert 0 <= int(numbers.min()) < 500 and 4500 < int(numbers.max()) < 5000
