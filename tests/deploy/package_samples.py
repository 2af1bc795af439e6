"""Runs whose best kernel is known: the samples' kernel for `userpkg`, and a C++ kernel for a hand-written problem."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Any

from deploy_samples import KERNEL, PROBLEM

from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.core.evaluation import Correct
from stark.core.node import Node
from stark.core.problem import Problem
from stark.core.reference import Reference, TensorSpec
from stark.core.run import RoleModel, Run, RunConfig
from stark.core.usage import Budget
from stark.results import Kernel, Result
from stark.strategies import strategy
from support.nodes import CPU, EAGER_MS, ROOFLINE, correct, measurement

HERE: Device = CPU.model_copy(update={"architecture": platform.machine()})

DOUBLE = '''"""A chain of small steps."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(64))

    def forward(self, x):
        for _ in range(24):
            x = torch.relu(0.9 * x + self.shift)
        return x


def get_inputs():
    return [torch.randn(16384, 64)]


def get_init_inputs():
    return []
'''

DOUBLE_CPP = '''import torch
import tvm_ffi.cpp
from torch import nn

SOURCE = """
using tvm::ffi::TensorView;

void twice(TensorView x, TensorView shift, TensorView out) {
  const int64_t rows = x.size(0), width = x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  const float* add = static_cast<const float*>(shift.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < width; ++i) {
      float value = from[row * width + i];
      for (int step = 0; step < 24; ++step) {
        value = 0.9f * value + add[i];
        value = value > 0 ? value : 0;
      }
      to[row * width + i] = value;
    }
}
"""
kernels = tvm_ffi.cpp.load_inline(
    "twice", cpp_sources=SOURCE, functions=["twice"], extra_cflags=["-O3"]
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(64))

    def forward(self, x):
        out = torch.empty_like(x)
        kernels.twice(x, self.shift.detach(), out)
        return out
'''


def result(
    problem: str = PROBLEM,
    source: str = KERNEL,
    language: str = "pytorch",
    evaluation: Correct | None = None,
    device: Device = HERE,
    **of_reference: Any,
) -> Result:
    """A run with one attempt, which is correct and passed the final check."""
    found = evaluation or correct(0.5)
    assert isinstance(found, Correct)
    found = found.model_copy(update={"device": device, "effort": "promote"})
    stated = Problem(name="gated", source=problem)
    if stated.declared.cases and evaluation is None:
        cases = dict.fromkeys(stated.declared.cases, found)
        found = found.model_copy(update={"cases": cases, "weighing": stated.weighing})
    node = Node(
        id=1,
        parent=0,
        action="improve",
        role="solo",
        candidate=Candidate(language=language, source=source),
        evaluation=found,
    )
    run = Run(
        id="gated-12ab",
        created=datetime(2026, 1, 1, tzinfo=UTC),
        problem=stated,
        config=RunConfig(
            language=language,
            strategy=strategy("stark"),
            models={"plan": RoleModel(model="exec:a")},
            executor="local",
            budget=Budget(attempts=1),
            seed=0,
        ),
        version="0.1.0",
    )
    reference = Reference(
        device=device,
        versions={"python": "3.11.7", "torch": "2.13.0"},
        inputs=(TensorSpec(shape=(2, 4, 16), dtype="float32"),),
        outputs=(),
        eager=measurement(EAGER_MS),
        roofline=ROOFLINE,
    )
    cases = dict.fromkeys(found.cases, reference)
    reference = reference.model_copy(update={"cases": cases, "weighing": found.weighing})
    return Result(run, reference.model_copy(update=of_reference), (node,), (), {1: found})


def kernel(**changes: Any) -> Kernel:
    """The kernel of such a run."""
    found = result(**changes).kernel
    assert found is not None
    return found
