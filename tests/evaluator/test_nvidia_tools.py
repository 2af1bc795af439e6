"""Candidates with a GPU under NVIDIA's own tools, in the sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Effort, Evaluation, Incorrect
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.evaluator.executors import Executor, open_executor
from stark.explain.evaluation import explain

pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="module")]

DOUBLED = Problem(
    name="doubled",
    source="""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2

def get_inputs():
    return [torch.randn(1_000_003)]

def get_init_inputs():
    return []
""",
)

TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.maximum(value, 0.0) * 2, mask=i < n{beyond})

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1024)
        return y
"""

RACING = """
import torch
import tvm_ffi.cpp

kernels = tvm_ffi.cpp.load_inline(
    "racing",
    cuda_sources=r'''
    #include <cuda_runtime.h>
    __global__ void doubled(const float* x, float* y, long n) {
      volatile __shared__ float factor;
      factor = 2.0f;  // every thread writes the same, and no barrier is between that and the reading
      const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
      if (i < n) y[i] = (x[i] > 0.0f ? x[i] : 0.0f) * factor;
    }
    void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
      const DLDevice device = x.device();
      auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
      const long n = x.numel();
      doubled<<<(n + 255) / 256, 256, 0, stream>>>(
          static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()), n);
    }
    ''',
    functions=["run"],
)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.run(x, y)
        return y
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def executor() -> AsyncIterator[Executor]:
    tools = Tools(counters=True, sanitizer=True)
    judge = open_executor("local:cuda:0", Limits(timing_budget_s=0.2), tools)
    yield judge
    await judge.close()


async def judged(executor: Executor, language: str, source: str, effort: Effort) -> Evaluation:
    candidate = Candidate(language=language, source=source)
    return await executor.evaluate(DOUBLED, candidate, effort)


async def test_a_kernel_that_is_well_has_counters_and_is_clean(executor: Executor) -> None:
    found = await judged(executor, "triton", TRITON.format(beyond=""), "promote")

    assert isinstance(found, Correct), found
    assert ("memcheck",) == found.sanitized, found.warnings
    assert found.profile is not None and found.profile.counters, found.warnings
    first = found.profile.counters[0]
    assert "double" == first.name and first.share > 0.9
    assert first.dram is not None and first.occupancy is not None and first.stalls
    assert "counters of double" in explain(found)


async def test_writing_past_the_end_is_found_where_results_are_right(executor: Executor) -> None:
    found = await judged(executor, "triton", TRITON.format(beyond=" + 64"), "promote")

    assert isinstance(found, Incorrect), found
    assert "memcheck found:\nInvalid __global__ write" in found.error
    assert "at double in candidate.py:10" in found.error


async def test_a_race_is_found_where_results_are_right(executor: Executor) -> None:
    found = await judged(executor, "cuda", RACING, "promote")

    assert isinstance(found, Incorrect), found
    assert "racecheck found:\nrace in shared memory at doubled" in found.error


async def test_a_search_has_counters_and_leaves_the_sanitizer_out(executor: Executor) -> None:
    found = await judged(executor, "triton", TRITON.format(beyond=" + 64"), "search")

    assert isinstance(found, Correct) and found.profile is not None
    assert found.profile.counters and () == found.sanitized, found.warnings
