"""The least bytes of a call: what it reads of its inputs and weights, and what it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stark.core.problem import Problem

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem.inputs import Program
from stark.evaluator.judge.problem.roofline import Operations, operations_of

TABLE = torch.rand(1000, 8)  # 32 bytes a row
ROW, INDEX = 32, 8


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: TABLE[torch.tensor([3, 3, 7])], 2 * ROW + 3 * ROW),
        (lambda: TABLE.index_select(0, torch.tensor([5, 5])), ROW + 2 * ROW),
        (lambda: TABLE[:10] * 2, 10 * ROW + 10 * ROW),
        (lambda: TABLE[:10].expand(4, 10, 8).sum(0), 10 * ROW + 10 * ROW),
        (lambda: TABLE + TABLE.t().t(), 2 * 1000 * ROW),
        (lambda: torch.zeros_like(TABLE)[:2], 2 * ROW),
        (lambda: TABLE[5:7], 2 * ROW),
    ],
)
def test_lookups_and_views_read_what_they_show(
    call: Callable[[], torch.Tensor], expected: int
) -> None:
    """Indices are made in the call, so they are not read from memory."""
    with torch.no_grad(), Operations("cpu") as operations:
        result = call()
    operations.returned([result])

    of_indices = sum(part.size for part in operations._read if part.capacity <= 3 * INDEX)
    assert expected == operations.least_bytes - of_indices


SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.randn(64))

    def forward(self, rows, values, cache):
        {body}

def get_inputs():
    return [torch.randperm(1000)[:4], torch.randn(4, 8), torch.randn(1000, 8)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    "body",
    [
        "return cache.index_copy_(0, rows, values)",
        "cache[rows] = values; return cache",
    ],
)
def test_rows_that_are_written_in_place_count_once_and_the_rest_not(
    body: str, tmp_path: Path
) -> None:
    counted = _counted(SOURCE.format(body=body), tmp_path)

    assert 4 * INDEX + 4 * ROW + 4 * ROW == counted.least_bytes


def test_code_that_shows_no_operators_may_read_everything(tmp_path: Path) -> None:
    body = "return torch.from_numpy(values.detach().numpy() * 2)"
    counted = _counted(SOURCE.format(body=body), tmp_path)

    assert 64 * 4 + 4 * INDEX + 4 * ROW + 1000 * ROW + 4 * ROW == counted.least_bytes


def _counted(source: str, folder: Path) -> Any:
    program = Program(Problem(name="rows", source=source), folder, torch.device("cpu"))
    drawn = program.draw(1)
    program.run_first(drawn)
    return operations_of(program, drawn, "cpu")
