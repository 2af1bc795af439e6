from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from stark.core.errors import ProblemError
from stark.core.problem import Problem

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem import twin
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.processes.failures import ChildFailed


def program(body: str, folder: Path) -> Program:
    source = f"""
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 8)

    def forward(self, x, other):
        {body}

def get_inputs():
    return [torch.randn(40, 16), torch.randn(16)]

def get_init_inputs():
    return []
"""
    return Program(Problem(name="made_up", source=source), folder, torch.device("cpu"))


def short_above(program: Program, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the reference in float64 run out of memory with more rows than that."""
    run = program.run_float64

    def limited(drawn: Drawn, model: torch.nn.Module) -> list[torch.Tensor]:
        if len(drawn.tensors[0]) > rows:
            raise torch.OutOfMemoryError("the device has none left")
        return run(drawn, model)

    monkeypatch.setattr(program, "run_float64", limited)


@pytest.mark.parametrize(("rows", "save_memory"), [(5, False), (1, False), (5, True), (40, True)])
def test_a_batch_that_does_not_fit_is_computed_in_slices(
    rows: int, save_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program("return self.inner(x) * 2, (x + other).argmax(dim=1)", tmp_path)
    drawn = made.draw(1)
    eager = made.run_first(drawn)
    whole = twin.Twin(made, save_memory=False).outputs(drawn, eager)
    short_above(made, rows, monkeypatch)

    found = twin.Twin(made, save_memory).outputs(drawn, eager)

    assert whole is not None and found is not None
    assert [torch.float64, torch.int64] == [output.dtype for output in found]
    assert 0 == pytest.approx(float((whole[0] - found[0]).abs().max()), abs=1e-12)
    assert torch.equal(whole[1], found[1])


@pytest.mark.parametrize(
    "body",
    [
        "return self.inner(x - x.mean(dim=0))",  # every row depends on all
        "return x.sum()",
        "return self.inner(x).T",
        "return x.cumsum(dim=0)",
    ],
)
def test_what_is_no_batch_has_no_oracle_where_it_does_not_fit(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program(body, tmp_path)
    drawn = made.draw(1)
    eager = made.run_first(drawn)
    short_above(made, 5, monkeypatch)

    for save_memory in (False, True):
        with pytest.raises(
            torch.OutOfMemoryError, match="no memory is left for the float64 oracle"
        ):
            twin.Twin(made, save_memory).outputs(drawn, eager)


def test_what_does_not_run_in_float64_has_no_oracle(tmp_path: Path) -> None:
    made = program(
        "return self.inner(x.float() + 0) if x.dtype == torch.float32 else 1 / 0", tmp_path
    )
    drawn = made.draw(1)

    assert twin.Twin(made, save_memory=False).outputs(drawn, made.run_first(drawn)) is None


def test_the_way_that_worked_is_tried_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program("return self.inner(x)", tmp_path)
    drawn = made.draw(1)
    eager = made.run_first(drawn)
    short_above(made, 5, monkeypatch)
    tried = twin.Twin(made, save_memory=False)
    assert tried.outputs(drawn, eager) is not None
    monkeypatch.setattr(made, "in_float64", in_float64 := Mock(wraps=made.in_float64))

    assert tried.outputs(drawn, eager) is not None
    assert 1 == in_float64.call_count


def test_memory_errors_are_told_from_others() -> None:
    assert twin.is_out_of_memory(torch.OutOfMemoryError("x"))
    assert twin.is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert twin.is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert not twin.is_out_of_memory(RuntimeError("expected float"))


@pytest.mark.parametrize(
    ("kind", "is_out_of_memory"), [("out_of_memory", True), ("crashed", False)]
)
def test_a_reference_that_has_no_memory_in_its_own_process_is_known(
    kind: Any, is_out_of_memory: bool
) -> None:
    refused = ProblemError("the eager reference does not run")
    refused.__cause__ = ChildFailed(kind, "OutOfMemoryError: CUDA out of memory")

    assert is_out_of_memory == twin.is_out_of_memory(refused)


CLOSURE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 8)
        self.block = lambda x: torch.relu(self.inner(x))

    def forward(self, x):
        return self.block(x)

def get_inputs():
    return [torch.randn(40, 16)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("save_memory", [False, True])
def test_functions_that_init_made_run_in_float64_too(save_memory: bool, tmp_path: Path) -> None:
    made = Program(Problem(name="closure", source=CLOSURE), tmp_path, torch.device("cpu"))
    drawn = made.draw(1)
    eager = made.run_first(drawn)

    found = twin.Twin(made, save_memory).outputs(drawn, eager)

    assert found is not None
    inner = made.model.inner
    exact = torch.relu(drawn.tensors[0].double() @ inner.weight.double().T + inner.bias.double())
    assert torch.equal(exact, found[0]) or torch.allclose(exact, found[0], rtol=1e-14)
    assert found[0].dtype == torch.float64


def test_what_runs_in_float64_in_no_way_has_no_oracle(tmp_path: Path) -> None:
    made = program("return self.inner(x.float()) + other.sum().float()", tmp_path)
    drawn = made.draw(1)

    found = twin.Twin(made, save_memory=False).outputs(drawn, made.run_first(drawn))

    assert found is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_least_number_of_a_type_is_the_references_own(dtype: str, tmp_path: Path) -> None:
    made = program(
        "return self.inner(x).masked_fill(x[:, :8] < 0, torch.finfo(x.dtype).min)", tmp_path
    )
    made.model.to(getattr(torch, dtype))
    first = made.draw(1)
    drawn = Drawn([each.to(getattr(torch, dtype)) for each in first.tensors], first.arguments)
    eager = made.run_first(drawn)

    found = twin.Twin(made, save_memory=False).outputs(drawn, eager)

    assert found is not None
    hidden = drawn.tensors[0][:, :8] < 0
    assert torch.equal(eager[0][hidden].double(), found[0][hidden])
    assert not torch.equal(eager[0][~hidden].double(), found[0][~hidden])


def test_what_overflows_in_the_reference_stays_another_number(tmp_path: Path) -> None:
    made = program("return self.inner(x) * 1e38 * 10", tmp_path)
    drawn = made.draw(1)
    eager = made.run_first(drawn)

    found = twin.Twin(made, save_memory=False).outputs(drawn, eager)

    assert found is not None
    assert bool(eager[0].isinf().any())
    assert bool(found[0].isfinite().all())
    assert bool((found[0].abs() > torch.finfo(torch.float32).max)[eager[0].isinf()].all())
