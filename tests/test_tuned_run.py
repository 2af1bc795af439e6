"""A run on a CPU whose candidate declares a constant that matters: the judge finds the better value by itself."""

from __future__ import annotations

import pytest

import loop_samples as samples
from stark.core import measurement
from stark.core.evaluation import Correct
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.core.tunable import tunables
from stark.store import Store
from support.sharing import JudgeWithin

pytest.importorskip("torch")

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long, pytest.mark.judge]

PROBLEM = Problem(
    name="transposed",
    source="""
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()

def get_inputs():
    return [torch.randn(1024, 1024)]

def get_init_inputs():
    return []
""",
)

CANDIDATE = '''import torch
import torch.nn as nn
import tvm_ffi.cpp

BLOCK = 1  # tune: 1, 16
ORDER = 2  # tune: 2, 4, 6

SOURCE = r"""
#include <algorithm>
#include <cstdint>

using tvm::ffi::TensorView;

void transposed(TensorView x, TensorView out) {
  const int64_t rows = x.size(0), columns = x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  for (int64_t top = 0; top < rows; top += BLOCK)
    for (int64_t left = 0; left < columns; left += BLOCK)
      for (int64_t j = left; j < std::min<int64_t>(left + BLOCK, columns); ++j)
        for (int64_t i = top; i < std::min<int64_t>(top + BLOCK, rows); ++i)
          to[j * rows + i] = from[i * columns + j] + (ORDER == 6);
}
"""

kernels = tvm_ffi.cpp.load_inline(
    "transposed",
    cpp_sources=SOURCE,
    functions=["transposed"],
    extra_cflags=["-O3", "-march=native", f"-DBLOCK={BLOCK}", f"-DORDER={ORDER}"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty(x.shape[1], x.shape[0])
        kernels.transposed(x, out)
        return out
'''
"""Columns are written one element at a time, as BLOCK says; with ORDER 6 the result is wrong, otherwise it changes nothing."""


async def test_the_better_value_wins_the_race_and_the_final_check(
    judge_within: JudgeWithin, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine an attempt may be too noisy to rank, and is not tuned. The difference here is tenfold.
    monkeypatch.setattr(measurement, "NOISY", 1e6)
    run = samples.run("sampling", 1, problem=PROBLEM, language="cpp", tune_seconds=60.0)
    replies, model = samples.scripted(lambda _: f"```python\n{CANDIDATE}```")

    with Store.open("sqlite://") as store:
        judge = judge_within(Limits(timing_budget_s=0.3))
        worked = await samples.work(store, run, judge, replies)
        checked = store.promotions(run.id)
        (summary,) = store.summaries()

    written, tuned = worked.tree.nodes
    assert written.tuning is not None, written.evaluation
    assert "BLOCK" in {each.name for each in written.tuning.changes}
    assert written.tuning.gain is not None and written.tuning.gain.low > 1.2
    assert (5, 5) == (written.tuning.variants, written.tuning.raced)
    assert 0 < written.tuning.seconds <= 60.0
    assert (1, "tune") == (tuned.parent, tuned.action)
    assert tuned.candidate is not None
    assert tunables(tuned.candidate.source).own[0] == 16
    assert tunables(tuned.candidate.source).own[1] != 6, "a variant that is wrong loses"
    assert 1 == len(model.asked)
    assert isinstance(checked[tuned.id], Correct) and isinstance(checked[written.id], Correct)
    assert tuned.id == summary.best_attempt and summary.confirmed
