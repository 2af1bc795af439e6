from __future__ import annotations

import time

import pytest

from stark.evaluator.judge.building.complaints import first_errors, source_line

SOURCE = '''import tvm_ffi.cpp

KERNELS = r"""
void fill(float* to) {
  flaot total = 0;
  total += 1;
  const float most = std::max(to[0], 0.0);
}
"""
tvm_ffi.cpp.load_inline("fill", cpp_sources=KERNELS)
'''

GCC = """RuntimeError: ninja exited with status 1
stdout:
[1/2] c++ -MMD -MF main.o.d -std=c++17 -O3 -I/opt/include -c build/fill_68/main.cpp -o main.o
FAILED: main.o
c++ -MMD -MF main.o.d -std=c++17 -O3 -I/opt/include -c build/fill_68/main.cpp -o main.o
build/fill_68/main.cpp: In function 'void fill(float*)':
build/fill_68/main.cpp:6:3: error: 'flaot' was not declared in this scope; did you mean 'float'?
    6 |   flaot total = 0;
      |   ^~~~~
      |   float
build/fill_68/main.cpp:7:3: error: 'total' was not declared in this scope
    7 |   total += 1;
      |   ^~~~~
ninja: build stopped: subcommand failed.

  line 10, in <module>: tvm_ffi.cpp.load_inline("fill", cpp_sources=KERNELS)"""

OVERLOAD = """build/fill_68/main.cpp:8:30: error: no matching function for call to 'max(float&, double)'
    8 |   const float most = std::max(to[0], 0.0);
      |                      ~~~~~~~~^~~~~~~~~~~~
In file included from /usr/include/c++/12/string:50,
                 from /opt/include/any.h:27,
                 from build/fill_68/main.cpp:1:
/usr/include/c++/12/bits/stl_algobase.h:254:5: note: candidate: 'template<class _Tp> std::max(_Tp&)'
  254 |     max(const _Tp& __a, const _Tp& __b)
      |     ^~~
/usr/include/c++/12/bits/stl_algobase.h:254:5: note:   template argument deduction/substitution failed:
build/fill_68/main.cpp:8:30: note:   deduced conflicting types for parameter 'const _Tp' ('float' and 'double')
    8 |   const float most = std::max(to[0], 0.0);
      |                      ~~~~~~~~^~~~~~~~~~~~
/usr/include/c++/12/bits/stl_algobase.h:300:5: note: candidate: 'template<class _Tp> std::max(_Tp&, int)'
  300 |     max(const _Tp& __a, const _Tp& __b, int)
      |     ^~~"""

INSTANTIATED = """In file included from /usr/include/c++/12/bits/stl_algobase.h:71,
                 from build/sort_78/main.cpp:1:
/usr/include/c++/12/bits/predefined_ops.h: In instantiation of 'bool operator()(_It1, _It2)':
/usr/include/c++/12/bits/stl_algo.h:1809:14:   required from 'void std::__insertion_sort(_It, _It)'
/usr/include/c++/12/bits/stl_algo.h:4820:18:   required from 'void std::sort(_RAIter, _RAIter)'
build/sort_78/main.cpp:30:41:   required from here
/usr/include/c++/12/bits/predefined_ops.h:45:23: error: no match for 'operator<' (operand types are 'P' and 'P')
   45 |       { return *__it1 < *__it2; }
      |                ~~~~~~~^~~~~~~~
/usr/include/c++/12/bits/stl_iterator.h:1246:5: note: candidate: 'template<class _L> bool operator<(_L)'"""

NVCC = """[1/2] /usr/local/cuda/bin/nvcc -std=c++17 -O2 -c build/fill_0c/cuda.cu -o cuda.o
FAILED: cuda.o
build/fill_0c/cuda.cu(46): error: identifier "flaot" is undefined
    flaot total = 0;
    ^

1 error detected in the compilation of "build/fill_0c/cuda.cu".
ninja: build stopped: subcommand failed."""

PTXAS = """FAILED: cuda.o
ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x61a80 bytes, 0x38c00 max)
ptxas fatal   : Ptx assembly aborted due to errors
ninja: build stopped: subcommand failed."""

LINKED = """FAILED: main.so
/usr/bin/ld: main.o: in function `fill':
main.cpp:(.text+0x1f): undefined reference to `missing(float)'
collect2: error: ld returned 1 exit status"""

TRITON_SOURCE = """@triton.jit
def add(x, y, n):
    offsets = tl.arange(0, 100)
    tl.store(y + offsets, tl.load(x + offsets))
"""

TRITON = """CompilationError: at 2:14:
def add(x, y, n):
    offsets = tl.arange(0, 100)
              ^
ValueError: arange's range must be a power of 2
  line 9, in forward: add[(1,)](x, y, n)"""


def test_an_error_of_gcc_is_told_with_its_line_in_the_candidates_file() -> None:
    assert [
        "main.cpp:6:3: error: 'flaot' was not declared in this scope; did you mean 'float'? (line 5 of the file)",
        "    6 |   flaot total = 0;",
        "      |   ^~~~~",
        "      |   float",
        "main.cpp:7:3: error: 'total' was not declared in this scope (line 6 of the file)",
        "    7 |   total += 1;",
        "      |   ^~~~~",
    ] == first_errors(GCC, SOURCE).splitlines()


def test_of_all_candidates_of_an_overload_only_the_reason_is_kept() -> None:
    assert [
        "main.cpp:8:30: error: no matching function for call to 'max(float&, double)' (line 7 of the file)",
        "    8 |   const float most = std::max(to[0], 0.0);",
        "      |                      ~~~~~~~~^~~~~~~~~~~~",
        "main.cpp:8:30: note:   deduced conflicting types for parameter 'const _Tp' ('float' and 'double')",
    ] == first_errors(OVERLOAD, SOURCE).splitlines()


def test_of_a_chain_of_instantiations_only_its_beginning_is_kept() -> None:
    assert [
        "predefined_ops.h:45:23: error: no match for 'operator<' (operand types are 'P' and 'P')",
        "   45 |       { return *__it1 < *__it2; }",
        "      |                ~~~~~~~^~~~~~~~",
        "main.cpp:30:41: required from here",
    ] == first_errors(INSTANTIATED).splitlines()


def test_an_error_of_nvcc_is_told_with_its_source_line() -> None:
    assert [
        'cuda.cu(46): error: identifier "flaot" is undefined',
        "    flaot total = 0;",
        "    ^",
    ] == first_errors(NVCC).splitlines()
    assert first_errors(NVCC, SOURCE).splitlines()[0].endswith("undefined (line 5 of the file)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            PTXAS,
            "ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x61a80 bytes, 0x38c00 max)",
        ),
        (LINKED, "undefined reference to `missing(float)'"),
    ],
)
def test_errors_without_a_source_line_are_told_alone(text: str, said: str) -> None:
    first = first_errors(text).splitlines()[0]

    assert first.endswith(said)


@pytest.mark.parametrize(
    "line",
    [
        "g++: error: unrecognized command-line option '-fno'",
        "clang++: error: no such file or directory: 'x.o'",
        "/usr/bin/x86_64-linux-gnu-ld.bfd: error: out of memory",
        "nvcc fatal   : Unsupported gpu architecture 'compute_01'",
        "ptxas /tmp/kernel.ptx, line 9; error   : Unknown symbol",
        "collect2: fatal error: ld terminated with signal 9 [Killed]",
    ],
)
def test_errors_that_tools_report_in_their_own_names_are_found(line: str) -> None:
    assert line == first_errors(f"FAILED: main.o\n{line}\nninja: build stopped.")


@pytest.mark.parametrize("part", ["ld-", "cc:", "++a", "error", "ld: error "])
def test_a_very_long_line_is_parsed_in_linear_time(part: str) -> None:
    """With one pattern for tools and their errors, 48 KB took 8 s of processor time or more. Now they take milliseconds."""
    begin = time.process_time()
    first_errors(part * (48_000 // len(part)))

    assert time.process_time() - begin < 3


def test_a_triton_function_is_cut_to_the_line_at_fault() -> None:
    long = TRITON.replace("def add(x, y, n):\n", "def add(x, y, n):\n" + "    x += 1\n" * 30)

    short, cut = first_errors(TRITON, TRITON_SOURCE), first_errors(long, TRITON_SOURCE)

    assert TRITON.replace("^", "^ line 3 of the file") == short
    assert 13 == len(cut.splitlines())
    assert ["CompilationError: at 2:14:", "    …", "    x += 1"] == cut.splitlines()[:3]


def test_a_python_error_stays_whole() -> None:
    text = "ValueError: no\n  line 3, in f: g()"

    assert text == first_errors(text)


def test_advice_for_debugging_is_left_out() -> None:
    text = (
        "AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        "Search for `cudaErrorIllegalAddress' in the documentation.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
        "  line 30, in forward: torch.cuda.synchronize()"
    )

    assert [text.splitlines()[0], text.splitlines()[-1]] == first_errors(text).splitlines()


def test_a_flood_of_errors_is_counted() -> None:
    flood = "\n".join(f"a.cu({n}): error: bad thing {n}" for n in range(1000))

    lines = first_errors(flood).splitlines()

    assert "… and 997 more errors" == lines[-1]
    assert 4 == len(lines)


def test_the_same_error_is_told_once() -> None:
    assert ["a.cu(0): error: bad"] == first_errors(
        "\n".join(f"a.cu({n}): error: bad" for n in range(9))
    ).splitlines()


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    lines = first_errors("\n".join(f"line {n}" for n in range(1000))).splitlines()

    assert ["line 0", "… 960 lines …", "line 999"] == [lines[0], lines[20], lines[-1]]


def test_a_line_of_a_generated_file_is_found_in_the_source_by_what_is_around_it() -> None:
    kernel = ["void one() {", "  sum += x;", "}", "void two() {", "  sum += x;", "}", "end();"]
    generated = ["#include <header.h>", *(f"  {line}" for line in kernel), "sum += x;"]
    source = "\n".join(["import torch", *kernel])

    assert [2, 3, 4] == [source_line(generated, number, source) for number in (2, 3, 4)]
    assert 6 == source_line(generated, 6, source)
    assert source_line(generated, 1, source) is None, "it is not in the source"
    assert source_line(generated, 9, source) is None, "either could be meant"
