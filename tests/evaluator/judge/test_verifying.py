"""Comparing a candidate's results: what the reference does on made-up inputs, and results too large to be kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.errors import ProblemError
from stark.core.problem import Problem
from stark.evaluator.judge import room
from stark.evaluator.judge.attempt import Verdict
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.trial import Called, Trial
from stark.evaluator.judge.verifying import Judged
from support.nodes import CPU

ON_A_GRID = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        if (x * 1024 % 1).any():
            raise ValueError("not on the grid")
        return 2 * x

def get_inputs():
    return [torch.randint(1, 1000, (64, 64)) / 1024]

def get_init_inputs():
    return []
"""


def test_a_reference_that_refuses_inputs_that_moved_explains_no_error(tmp_path: Path) -> None:
    forkserver: Any = SimpleNamespace(folder=tmp_path)
    problem = Problem(name="p", source=ON_A_GRID)
    prepared = PreparedReference(problem, torch.device("cpu"), CPU, forkserver)
    trial = prepared.trials.nominal[0]
    drawn, expected = prepared.trials.drawn(trial), prepared.trials.expected(trial)
    found = [each.eager.clone() for each in expected]
    found[0].view(-1)[found[0].argmin()] += 1.2e-3

    with pytest.raises(ProblemError, match="not on the grid"):
        next(prepared.trials.expectations.moved(drawn, 0))
    with pytest.raises(Verdict) as verdict:
        Judged(prepared, drawn, trial).check(Called(found))

    assert "output 0" in verdict.value.evaluation.error


PLAIN = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)

def get_inputs():
    return [torch.rand(256, 256)]

def get_init_inputs():
    return []
"""


def test_of_large_results_equal_to_the_reference_s_the_oracle_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for use in room.CPU_BYTES:
        monkeypatch.setitem(room.CPU_BYTES, use, 1 << 10)
    forkserver: Any = SimpleNamespace(folder=tmp_path)
    prepared = PreparedReference(
        Problem(name="p", source=PLAIN), torch.device("cpu"), CPU, forkserver
    )
    for trial in prepared.trials.always:
        drawn = prepared.trials.drawn(trial)
        found = prepared.program.run(drawn)
        whole = Judged(prepared, drawn, trial).check(Called(found))
        judged = Judged(prepared, drawn, trial)

        assert judged.as_reference(Called(found)) == whole
        assert "expected" not in vars(judged)
        assert judged.as_reference(Called([torch.nextafter(found[0], torch.ones(1))])) is None
        assert judged.as_reference(Called(found, changed=0)) is None
        assert judged.as_reference(Called(found, odd=["nothing"])) is None
    fresh = Trial.fresh()
    drawn = prepared.trials.drawn(fresh)
    found = prepared.program.run(drawn)

    assert Judged(prepared, drawn, fresh).as_reference(Called(found)) is None
