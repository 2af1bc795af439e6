from __future__ import annotations

import ast
from typing import Any

import inductor_samples as samples
import pytest

from stark.evaluator.candidate.generating import Generated, NotGenerated
from stark.evaluator.judge.compiler.transplant import candidate_source

PROBLEM = '''"""A problem with names that generated files have too."""
from __future__ import annotations

import math
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
call = 2.0  # a factor


# Adds up.
def device(factor):
    return factor + 1


class Runner(nn.Module):
    def __init__(self):
        super(Runner, self).__init__()
        self.factor = device(call)


class Model(nn.Module):
    """Multiplies."""

    def __init__(self, size):
        super(Model, self).__init__()
        self.runner = Runner()
        self.weight = nn.Parameter(self._first(size))

    def _first(self, size):
        return torch.ones(size)

    def _last(self, x):
        return F.relu(x)

    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        return self._last(outputs * self.weight * self.runner.factor)


torch.set_printoptions(precision=4)


def get_inputs():
    return [torch.rand(BATCH)]


def get_init_inputs():
    return [BATCH]


if __name__ == "__main__":
    print(Model(4))
'''

CODE = samples.generated_file(
    "kernel_0 = device('cpu')\n",
    "arg0_1, arg1_1 = args\nargs.clear()\nassert_size_stride(arg0_1, (4, ), (1, ), 'input')\n"
    "return (arg0_1.to(kernel_0) * arg1_1 * 3.0, )",
)


def generated(**changes: Any) -> Generated:
    values = {
        "code": CODE,
        "arguments": ["outputs", "self.weight"],
        "outputs": "outputs_",
        "returned": "{'y': outputs_[0], 'n': None}",
    }
    return Generated(**values | changes)


def test_the_candidate_computes_with_the_generated_function_and_the_modules_own_weights() -> None:
    torch = pytest.importorskip("torch")
    scope: dict[str, Any] = {"__name__": "candidate"}

    exec(candidate_source(PROBLEM, generated()), scope)

    model = scope["ModelNew"](4)
    model.load_state_dict({"weight": torch.tensor([1.0, 2.0, 3.0, 4.0])})
    found = model(torch.ones(4))
    assert {"y": [3.0, 6.0, 9.0, 12.0], "n": None} == {"y": found["y"].tolist(), "n": found["n"]}
    assert 3.0 == model.runner.factor, "the problem's own device and call"
    assert "call" in scope and scope["call"] == 2.0


def test_the_candidate_holds_what_it_needs_and_nothing_else() -> None:
    source = candidate_source(PROBLEM, generated())

    names = [
        getattr(node, "name", None) or ast.unparse(node).split(" = ")[0]
        for node in ast.parse(source).body
        if not isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert [
        "assert_size_stride",
        "kernel_0",
        "compiled_call",
        "call",
        "device",
        "Runner",
        "ModelNew",
        "torch.set_printoptions(precision=4)",
    ] == names
    assert source.startswith("from __future__ import annotations\n")
    assert "# Adds up.\ndef device" in source
    for gone in ("get_inputs", "BATCH", "import os", "functional", "_last", "__main__", "AsyncC"):
        assert gone not in source
    assert "_first" in source


def test_a_long_call_has_an_argument_to_a_line() -> None:
    arguments = ["outputs", *(f"self.layers[{n}].weight" for n in range(6))]

    source = candidate_source(PROBLEM, generated(arguments=arguments))

    assert "            self.layers[3].weight,\n" in source.replace(
        "                ", "            "
    )
    assert max(map(len, source.splitlines())) < 130


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("from elsewhere import Model\n", "does not define class Model"),
        ("class Model(Base):\n    pass\n", "does not define forward"),
    ],
)
def test_a_module_that_is_not_there_as_text_is_refused(problem: str, reason: str) -> None:
    with pytest.raises(NotGenerated, match=reason):
        candidate_source(problem, generated())
