"""What a problem sets in torch holds for the problem, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from stark.core.problem import Problem
from stark.evaluator.candidate import flags
from stark.evaluator.judge.problem.inputs import Program

SOURCE = """
import torch
import torch.nn as nn

{top}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}
        return x + torch.zeros(4)

def get_inputs():
    return [torch.rand(4)]

def get_init_inputs():
    return []
"""

SETTINGS = {
    "default_dtype": ("torch.set_default_dtype(torch.bfloat16)", torch.bfloat16),
    "float32_matmul_precision": ("torch.set_float32_matmul_precision('high')", "high"),
    "cuda.matmul.fp32_precision": ("torch.backends.cuda.matmul.allow_tf32 = True", "tf32"),
    "cudnn.benchmark": ("torch.backends.cudnn.benchmark = True", True),
    "threads": ("torch.set_num_threads(1)", 1),
}


def program(folder: Path, top: str = "", init: str = "pass", forward: str = "pass") -> Program:
    source = SOURCE.format(top=top, init=init, forward=forward)
    return Program(Problem(name="sets", source=source), folder, torch.device("cpu"))


@pytest.fixture(autouse=True)
def two_threads() -> None:
    torch.set_num_threads(2)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("where", ["top", "init", "forward"])
def test_a_setting_holds_for_its_problem_and_nowhere_else(
    name: str, where: str, tmp_path: Path
) -> None:
    statement, value = SETTINGS[name]
    before = flags.current()

    found = program(tmp_path, **{where: statement})
    found.run_first(found.draw(1))

    assert before == flags.current()
    assert value == found.flags[name]
    found.close()


def test_a_problem_computes_under_its_own_settings(tmp_path: Path) -> None:
    strange = program(tmp_path, top="torch.set_default_dtype(torch.bfloat16)")
    drawn = strange.draw(1)

    assert [torch.bfloat16] == [tensor.dtype for tensor in drawn.tensors]
    assert [torch.bfloat16] == [tensor.dtype for tensor in strange.run_first(drawn)]
    assert [torch.bfloat16] == [tensor.dtype for tensor in strange.run(strange.draw(2))]
    strange.close()
    usual = program(tmp_path)
    assert [torch.float32] == [tensor.dtype for tensor in usual.run_first(usual.draw(1))]
    usual.close()


def test_what_a_problem_that_raises_has_set_is_gone(tmp_path: Path) -> None:
    before = flags.current()

    with pytest.raises(Exception, match="no model"):
        program(
            tmp_path, top="torch.set_default_dtype(torch.float16)\nraise ValueError('no model')"
        )

    assert before == flags.current()


def test_settings_that_torch_refuses_to_read_are_given_back(tmp_path: Path) -> None:
    """Whoever mixes torch's old and new interface for a precision can no longer read the old one."""
    before = flags.current()

    mixed = program(tmp_path, top="torch.backends.cuda.matmul.fp32_precision = 'tf32'")
    mixed.run_first(mixed.draw(1))

    assert "tf32" == mixed.flags["cuda.matmul.fp32_precision"]
    assert before == flags.current()
    mixed.close()
