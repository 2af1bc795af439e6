"""C++ candidates under AddressSanitizer and UndefinedBehaviorSanitizer: what is found, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

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
BY_COMMAND = """
built = os.path.abspath("kernel.so")
subprocess.run(["c++", "-shared", "-fPIC", "kernel.cpp", "-o", built], check=True)
"""

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
    "reads a row past the input": (
        "lost = from[count + columns];",
        "buffer-overflow: read of 4 bytes at {line}, "
        "1000 bytes past the end of the input float32[64, 250]",
    ),
    "reads past a weight": (
        "lost += by[columns];",
        "heap-buffer-overflow: read of 4 bytes at {line}, "
        "0 bytes past the end of a buffer of 1000 bytes",
    ),
    "reads one before the input": (
        "lost = from[-1];",
        "buffer-overflow: read of 4 bytes at {line}, "
        "4 bytes before the start of the input float32[64, 250]",
    ),
    "writes past the output": (
        "to[count] = 1.0f;",
        "heap-buffer-overflow: write of 4 bytes at {line}, "
        "0 bytes past the end of a buffer of 64000 bytes",
    ),
    "reads far away": (
        "lost = from[int64_t(1) << 40];",
        "SEGV: read of memory that does not exist at {line}",
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
@pytest.mark.parametrize(
    "fault",
    [pytest.param(each, marks=pytest.mark.long if n else ()) for n, each in enumerate(BUFFERS)],
)
def test_an_access_outside_of_a_buffer_is_found_with_its_line(found: Found, fault: str) -> None:
    code, expected = BUFFERS[fault]
    text = source(code)

    assert [expected.format(line=line_of(code, text))] == found(text)


@pytest.mark.slow
def test_undefined_arithmetic_and_an_access_after_it_are_found_with_their_lines(
    found: Found,
) -> None:
    overflow, shift = "lost += n * 1000000;", "lost += 1 << m;"
    past, said = BUFFERS["reads past a weight"]
    text = source(f"int n = count, m = columns;\n  {overflow}\n  {shift}\n  {past}")

    assert [
        "signed integer overflow: 16000 * 1000000 cannot be represented in type 'int' at "
        + line_of(overflow, text),
        "shift exponent 250 is too large for 32-bit type 'int' at " + line_of(shift, text),
        said.format(line=line_of(past, text)),
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
    built = OTHERWISE.replace("{build}", BY_TORCH).replace("from[-1]", "from[0]")
    fails = built.replace("return x * self.scale", "raise ValueError('no such size')")

    with pytest.raises(NotRun, match="ValueError: no such size"):
        found(fails)


GENERATED = "checked/main.cpp"
CODE = """#include "tvm_ffi.h"
#include <immintrin.h>
void scaled(const float* from, float* to) {
  float row[4];
  row[n] = from[0];
}
"""
OWN = f"""KERNEL = r'''{CODE.partition(chr(10))[2]}'''"""
HEADERS = """    #0 0x7f01 in memcpy ../../../../src/libsanitizer/asan/asan_interceptors.cpp:827
    #1 0x7f02 in _mm256_loadu_ps(float const*) /usr/lib/gcc/x86_64-linux-gnu/12/include/avxintrin.h:875
    #2 0x7f03 in std::vector<float>::operator[](unsigned long) /usr/include/c++/12/bits/stl_vector.h:1123
"""


def report(first: str, frames: str, rest: str = "") -> Ran:
    return Ran("", f"hello\n==7==ERROR: AddressSanitizer: {first}\n{frames}\n{rest}", 1)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "checked").mkdir(parents=True)
    (folder / GENERATED).write_text(CODE)
    return folder


@pytest.mark.parametrize(
    ("first", "rest", "expected"),
    [
        (
            "heap-buffer-overflow on address 0x5020 at pc 0x1 bp 0x2 sp 0x3\nREAD of size 4 at 0x5020 thread T0",
            "0x5020 is located 4 bytes after 1000-byte region [0x4000,0x43e8)",
            "heap-buffer-overflow: read of 4 bytes at {place}, 4 bytes past the end of a buffer of 1000 bytes",
        ),
        (
            "stack-buffer-overflow on address 0x5020 at pc 0x1 bp 0x2 sp 0x3\nWRITE of size 4 at 0x5020 thread T0",
            "    [32, 48) 'row' (line 4) <== Memory access at offset 48 overflows this variable",
            "stack-buffer-overflow: write of 4 bytes at {place}, outside of the variable 'row'",
        ),
        (
            "global-buffer-overflow on address 0x5020 at pc 0x1 bp 0x2 sp 0x3\nREAD of size 8 at 0x5020 thread T0",
            "0x5020 is located 24 bytes to the left of global variable 'table' defined in 'main.cpp:1:7' (0x5038)",
            "global-buffer-overflow: read of 8 bytes at {place}, 24 bytes before the start of global variable 'table'",
        ),
        (
            "SEGV on unknown address 0x000000000008 (pc 0x1 bp 0x2 sp 0x3 T0)\n"
            "==7==The signal is caused by a WRITE memory access.",
            "",
            "SEGV: write of memory that does not exist at {place}",
        ),
        ("attempting double-free on 0x5020 in thread T0:", "", "attempting double-free at {place}"),
        (
            "memcpy-param-overlap: memory ranges [0x1,0x9) and [0x2, 0xa) overlap",
            "",
            "memcpy-param-overlap at {place}",
        ),
    ],
)
def test_a_report_is_read(work: Path, first: str, rest: str, expected: str) -> None:
    own = f"    #3 0x7f04 in scaled(float const*, float*) {GENERATED}:5 (BuildId: 0a1b)\n"
    place = "line 4 of the file (`row[n] = from[0];`)"

    assert [expected.format(place=place)] == found_in(report(first, HEADERS + own, rest), work, OWN)


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("0x7f0010fc", "4 bytes before the start"),
        ("0x7f001500", "0 bytes past the end"),
        ("0x7f0014e4", "up to 4 bytes past the end"),
    ],
)
def test_the_input_beside_an_access_is_named(work: Path, address: str, where: str) -> None:
    ran = report(
        f"unknown-crash on address {address} at pc 0x1 bp 0x2 sp 0x3\nREAD of size 32 at {address} thread T2",
        HEADERS + f"    #3 0x7f04 in scaled {GENERATED}:5",
    )
    given = "guarded input 0x7e000000 64 int64[8]\nguarded input 0x7f001100 1024 float32[256]\n"
    place = "line 4 of the file (`row[n] = from[0];`)"

    assert [
        f"buffer-overflow: read of 32 bytes at {place}, {where} of the input float32[256]"
    ] == found_in(Ran("", given + ran.printed, 1), work, OWN)


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (
            report("SEGV on unknown address 0x0", "    #0 0x7f01  (/lib/libtorch_cpu.so+0x11)"),
            "only in a library: SEGV at /lib/libtorch_cpu.so\\+0x11",
        ),
        (
            Ran(
                "",
                "/usr/include/tvm/ffi/any.h:7:3: runtime error: shift exponent 99 is too large\n",
                0,
            ),
            "only in a library: shift exponent 99 is too large at /usr/include/tvm/ffi/any.h:7",
        ),
        (
            report("stack-overflow on address 0x1", f"    #0 0x7f01 in scaled {GENERATED}:5"),
            "the checks need more memory than there is: stack-overflow",
        ),
        (
            report("SEGV on unknown address 0x0", "    #0 0x7f01 in f ../secret:1"),
            "only in a library: SEGV at ../secret:1",
        ),
        (
            report("SEGV on unknown address 0x0", "    #0 0x7f01 in f link:1"),
            "only in a library: SEGV at link:1",
        ),
        (Ran("", "MemoryError: no memory\n", 1), "failed under the tool: MemoryError: no memory"),
    ],
)
def test_what_is_not_surely_the_candidates_own_error_gives_no_result(
    work: Path, ran: Ran, said: str
) -> None:
    (work.parent / "secret").write_text("a password\n")
    (work / "link").symlink_to(work.parent / "secret")

    with pytest.raises(NotRun, match=said):
        found_in(ran, work, OWN)


def test_a_compiler_without_the_checks_is_named() -> None:
    with pytest.raises(NotRun, match=r"/nonexistent/c -O2 has no libasan.so; install g"):
        memory_errors.runtime("/nonexistent/c -O2")
