"""C++ candidates under AddressSanitizer and UndefinedBehaviorSanitizer: what is found, and what is not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.judge.building.builds import Built
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
#pragma omp parallel for schedule(static) num_threads(2)
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

OTHERWISE = '''
import ctypes
import os
import subprocess
from pathlib import Path
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

Path("kernel.cpp").write_text(r"""
extern "C" float before(const float* from) {
  return from[-1];
}
""")
{build}


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        ctypes.CDLL(built).before(ctypes.c_void_p(x.data_ptr()))
        return x * self.scale
'''

BY_TORCH = 'built = load("kernel", ["kernel.cpp"], is_python_module=False)'
BY_COMMAND = '''
built = os.path.abspath("kernel.so")
subprocess.run(["c++", "-shared", "-fPIC", "kernel.cpp", "-o", built], check=True)
'''

Found = Callable[..., list[str]]


def source(fault: str = "", includes: str = "", before: str = "") -> str:
    return SOURCE.format(fault=fault, includes=includes, before=before)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    """Builds and runs a candidate and returns what is found in it."""
    server = Forkserver.start(language("cpp").preload)
    prepared = PreparedReference(PROBLEM, torch.device("cpu"), CPU, server)
    def findings(source: str) -> list[str]:
        built = Built(tmp_path_factory.mktemp("built"))
        built.source.write_text(source)
        return memory_errors.findings(Target(built, "cpp", prepared, Limits()))

    yield findings
    prepared.close()
    server.close()


BUFFERS = {
    "reads one before the input": (
        "lost = from[-1];",
        "buffer-overflow: read of 4 bytes at {line}, "
        "4 bytes before the start of the input float32[64, 250]",
    ),
    "reads a row past the input": (
        "lost = from[count + columns];",
        "buffer-overflow: read of 4 bytes at {line}, "
        "1000 bytes past the end of the input float32[64, 250]",
    ),
    "reads past a weight": (
        "lost = by[columns];",
        "heap-buffer-overflow: read of 4 bytes at {line}, "
        "0 bytes past the end of a buffer of 1000 bytes",
    ),
    "writes past the output": (
        "to[count] = 1.0f;",
        "heap-buffer-overflow: write of 4 bytes at {line}, "
        "0 bytes past the end of a buffer of 64000 bytes",
    ),
    "copies too much": (
        "std::memcpy(to, from, 4 * (count + columns));",
        "buffer-overflow: read of 65000 bytes at {line}, "
        "0 bytes past the end of the input float32[64, 250]",
    ),
}


def line_of(code: str, text: str) -> str:
    number = next(n for n, line in enumerate(text.split("\n"), 1) if line.strip() == code)
    return f"line {number} of the file (`{code}`)"


@pytest.mark.slow
@pytest.mark.parametrize("fault", BUFFERS)
def test_an_access_outside_of_a_buffer_is_found_with_its_line(found: Found, fault: str) -> None:
    code, expected = BUFFERS[fault]
    text = source(code)

    assert [expected.format(line=line_of(code, text))] == found(text)


@pytest.mark.slow
def test_undefined_arithmetic_is_found_with_its_lines(found: Found) -> None:
    overflow, shift = "lost += n * 1000000;", "lost += 1 << m;"
    text = source(f"int n = count, m = columns;\n  {overflow}\n  {shift}")

    assert [
        "signed integer overflow: 16000 * 1000000 cannot be represented in type 'int' at "
        + line_of(overflow, text),
        "shift exponent 250 is too large for 32-bit type 'int' at " + line_of(shift, text),
    ] == found(text)


INTRINSICS = """
#if defined(__AVX2__)
  for (int64_t i = 0; i + 8 <= count; i += 8) lost += _mm256_cvtss_f32(_mm256_loadu_ps(from + i));
#endif
"""


@pytest.mark.slow
def test_an_honest_candidate_with_threads_and_intrinsics_passes(found: Found) -> None:
    includes = "#if defined(__AVX2__)\n#include <immintrin.h>\n#endif"

    assert [] == found(source(INTRINSICS, includes))


@pytest.mark.slow
def test_a_candidate_built_by_torch_is_checked_too(found: Found) -> None:
    text = OTHERWISE.replace("{build}", BY_TORCH)

    expected = BUFFERS["reads one before the input"][1]
    assert [expected.format(line=line_of("return from[-1];", text))] == found(text)


@pytest.mark.slow
def test_code_that_is_not_checked_is_named(found: Found) -> None:
    with pytest.raises(NotRun, match=r"it loaded kernel.so, which was built neither by tvm-ffi"):
        found(OTHERWISE.replace("{build}", BY_COMMAND))


@pytest.mark.slow
def test_a_candidate_that_fails_under_the_tool_gives_no_result(found: Found) -> None:
    fails = source().replace("        return out", "        raise ValueError('no such size')")

    with pytest.raises(NotRun, match="ValueError: no such size"):
        found(fails)
