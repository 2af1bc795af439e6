"""C++ candidates under AddressSanitizer and UndefinedBehaviorSanitizer: what is found, and what is not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.candidate import Candidate
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.judge.building.builds import Builds
from stark.evaluator.judge.building.cache import BuildCache
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.tools import memory_errors
from stark.evaluator.judge.tools.memory_errors import found_in
from stark.evaluator.judge.tools.running import NotRun, Ran, Target
from stark.languages import language
from support.nodes import CPU

PROBLEM = Problem(
    name="shifted_sum",
    source="""
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return x * self.scale

def get_inputs():
    return [torch.randn(64, 250)]

def get_init_inputs():
    return [250]
""",
)

SOURCE = '''
import torch
import torch.nn as nn
import tvm_ffi.cpp

KERNEL = r"""
#include <cstdint>
#include <cstring>
#include <vector>
{includes}
using tvm::ffi::TensorView;

{before}

void scaled(TensorView x, TensorView scale, TensorView out) {{
  const float* from = static_cast<const float*>(x.data_ptr());
  const float* by = static_cast<const float*>(scale.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  const int64_t rows = x.size(0), columns = x.size(1), count = rows * columns;
  float lost = 0.0f;
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row) {{
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) {{
      to[row * columns + i] = from[row * columns + i] * by[i];
    }}
  }}
  {fault}
  if (lost == 12345.0f) to[0] = lost;
}}
"""

kernels = tvm_ffi.cpp.load_inline(
    "scaled",
    cpp_sources=KERNEL,
    functions=["scaled"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        out = torch.empty_like(x)
        kernels.scaled(x, self.scale, out)
        return out
'''

Found = Callable[..., list[str]]


def source(fault: str = "", includes: str = "", before: str = "") -> str:
    return SOURCE.format(fault=fault, includes=includes, before=before)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    """Builds a candidate and returns what is found in it."""
    server = Forkserver.start(language("cpp").preload)
    prepared = PreparedReference(PROBLEM, torch.device("cpu"), CPU, server)
    builds = Builds(BuildCache(tmp_path_factory.mktemp("builds"), 1e9), CPU, server)

    def findings(source: str) -> list[str]:
        candidate = Candidate(language="cpp", source=source)
        with builds.in_use(candidate):
            built = builds.build(candidate, Limits())
            assert built.error is None, built.error
            with builds.ready(candidate, built):
                return memory_errors.findings(Target(built, "cpp", prepared, Limits()))

    yield findings
    prepared.close()
    server.close()


FAULTS = {
    "reads one before the input": (
        "lost = from[-1];",
        "buffer-overflow: read of 4 bytes at {line} (`{code}`), "
        "4 bytes before the start of the input float32[64, 250]",
    ),
    "reads one past the input": (
        "lost = from[count];",
        "buffer-overflow: read of 4 bytes at {line} (`{code}`), "
        "0 bytes past the end of the input float32[64, 250]",
    ),
    "reads a row before the input": (
        "lost = from[-columns];",
        "buffer-overflow: read of 4 bytes at {line} (`{code}`), "
        "1000 bytes before the start of the input float32[64, 250]",
    ),
    "reads past a weight": (
        "lost = by[columns];",
        "heap-buffer-overflow: read of 4 bytes at {line} (`{code}`), "
        "0 bytes past the end of a buffer of 1000 bytes",
    ),
    "writes past the output": (
        "to[count] = 1.0f;",
        "heap-buffer-overflow: write of 4 bytes at {line} (`{code}`), "
        "0 bytes past the end of a buffer of 64000 bytes",
    ),
    "copies too much": (
        "std::vector<float> row(columns); std::memcpy(row.data(), from, 4 * (count + columns));",
        "heap-buffer-overflow: write of 65000 bytes at {line} (`{code}`), "
        "0 bytes past the end of a buffer of 1000 bytes",
    ),
    "overflows an integer": (
        "int n = count; lost = n * 1000000;",
        "signed integer overflow: 16000 * 1000000 cannot be represented in type 'int' "
        "at {line} (`{code}`)",
    ),
    "shifts too far": (
        "int n = columns; lost = 1 << n;",
        "shift exponent 250 is too large for 32-bit type 'int' at {line} (`{code}`)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_in_the_candidates_code_is_found_with_its_line(found: Found, fault: str) -> None:
    code, expected = FAULTS[fault]
    text = source(code)
    number = next(n for n, line in enumerate(text.split("\n"), 1) if line.strip() == code)

    assert [expected.format(line=f"line {number} of the file", code=code)] == found(text)


INTRINSICS = """
#if defined(__AVX2__)
  for (int64_t i = 0; i + 8 <= count; i += 8) lost += _mm256_cvtss_f32(_mm256_loadu_ps(from + i));
#endif
"""


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", INTRINSICS])
def test_an_honest_candidate_with_threads_or_intrinsics_passes(found: Found, extra: str) -> None:
    includes = "#if defined(__AVX2__)\n#include <immintrin.h>\n#endif" if extra else ""

    assert [] == found(source(extra, includes))
