"""The least bytes of a call: what it reads of its inputs and weights, and what it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stark.core.problem import Problem

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem import traffic
from stark.evaluator.judge.problem.inputs import Program
from stark.evaluator.judge.problem.roofline import Operations, operations_of
from stark.evaluator.judge.problem.traffic import bytes_of

TABLE = torch.rand(1000, 8, generator=torch.Generator().manual_seed(0))  # 32 bytes a row
ROW, INDEX = 32, 8
BELOW = int((TABLE[:, 0] < 0.5).sum())


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
        (lambda: torch.stack([TABLE[torch.tensor([k, 9])] for k in range(8)]), 9 * ROW + 16 * ROW),
        (lambda: TABLE[torch.tensor([-1, 999]), torch.tensor([0, 0])], 4 + 2 * 4),
        (lambda: TABLE[TABLE[:, 0] < 0.5], 2 * BELOW * ROW),
        (lambda: TABLE.gather(0, torch.tensor([[5], [5]]).expand(2, 8)), ROW + 2 * ROW),
        (lambda: TABLE.gather(1, torch.tensor([[0, 0], [1, 2]])), 3 * 4 + 4 * 4),
        (lambda: TABLE.take(torch.tensor([-1, 7999, 0])), 2 * 4 + 3 * 4),
        (lambda: TABLE[0, 0].gather(0, torch.tensor([0])), 4 + 4),
        (lambda: TABLE[0, 0].take(torch.tensor(0)), 4 + 4),
        (lambda: TABLE[0, 0][torch.tensor(True)], 4 + 4),
        (lambda: TABLE[torch.tensor([], dtype=torch.long)], 0),
        (lambda: TABLE[:1].expand(5, 8)[torch.tensor([0, 4])], ROW + 2 * ROW),
        (lambda: sum(TABLE[100 + k : 120 + k] * 1 for k in range(10)), 29 * ROW + 20 * ROW),
        (lambda: TABLE[0].unfold(0, 4, 1) * 1, ROW + 5 * 4 * 4),
        (lambda: TABLE[:, 0] + TABLE[:, 7], 2 * 1000 * 4 + 1000 * 4),
    ],
)
def test_lookups_and_views_read_what_they_show(
    call: Callable[[], torch.Tensor], expected: int
) -> None:
    """Indices are made in the call, so they are not read from memory."""
    with torch.no_grad(), Operations("cpu") as operations:
        result = call()
    operations.end([], [result])

    table = TABLE.untyped_storage()._cdata
    of_indices = bytes_of(part for part in operations._read if part.storage != table)
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
        "return cache.scatter_(0, rows[:, None].expand(4, 8), values)",
        "[cache.index_copy_(0, rows[k:][:1], values[k:][:1]) for k in range(4)]; return cache",
        "cache[rows] = values; return cache.index_copy_(0, rows, values)",
    ],
)
def test_rows_that_are_written_in_place_count_once_and_the_rest_not(
    body: str, tmp_path: Path
) -> None:
    counted = _counted(SOURCE.format(body=body), tmp_path)

    assert 4 * INDEX + 4 * ROW + 4 * ROW == counted.least_bytes


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return cache.index_add_(0, rows, values)", 4 * INDEX + 3 * 4 * ROW),
        (
            "return cache.scatter_add_(0, rows[:, None].expand(4, 8), values)",
            4 * INDEX + 3 * 4 * ROW,
        ),
        ("return cache.index_reduce_(0, rows, values, 'amax')", 4 * INDEX + 3 * 4 * ROW),
        ("return cache.index_fill_(0, rows, 0.0)", 4 * INDEX + 4 * ROW),
        ("return cache.scatter_(0, rows[:, None], 0.0)", 4 * INDEX + 4 * 4),
        (
            "return cache.scatter_reduce_(0, rows[:, None], values, 'amax')",
            4 * INDEX + 4 * ROW + 2 * 4 * 4,
        ),
    ],
)
def test_additions_to_rows_read_those_rows_alone(body: str, expected: int, tmp_path: Path) -> None:
    assert expected == _counted(SOURCE.format(body=body), tmp_path).least_bytes


def test_lookups_of_very_many_rows_count_no_more_than_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traffic, "MOST_ROWS", 2)
    for numbers, rows in (([3, 3, 7], 3), ([3] * 2000, 1000)):
        with torch.no_grad(), Operations("cpu") as operations:
            TABLE.index_select(0, torch.tensor(numbers))
        assert rows * ROW + len(numbers) * INDEX == operations.least_bytes


def test_code_that_shows_no_operators_may_read_everything(tmp_path: Path) -> None:
    body = "return torch.from_numpy(values.detach().numpy() * 2)"
    counted = _counted(SOURCE.format(body=body), tmp_path)

    assert 64 * 4 + 4 * INDEX + 4 * ROW + 1000 * ROW + 4 * ROW == counted.least_bytes


def _counted(source: str, folder: Path) -> Any:
    program = Program(Problem(name="rows", source=source), folder, torch.device("cpu"))
    drawn = program.draw(1)
    program.run_first(drawn)
    return operations_of(program, drawn, "cpu")
