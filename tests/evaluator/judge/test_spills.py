"""What ptxas says about kernels, as nvcc 13.0 prints it with --resource-usage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stark.core.judging import Limits
from stark.evaluator.judge.building.builds import Builds
from stark.evaluator.judge.building.cache import BuildCache
from stark.evaluator.judge.processes.child import Patience
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.profiling import spilled_bytes
from stark.languages import language
from support.examples import guide_example
from support.nodes import DEVICE, TOOLCHAIN

SAID = """
ninja build stdout:
[1/2] /usr/local/cuda/bin/nvcc -gencode=arch=compute_90a,code=sm_90a -c cuda.cu -o cuda_0.o
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5scaleILi1EEvPffl' for 'sm_90a'
ptxas info    : Function properties for _Z5scaleILi1EEvPffl
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas info    : Compile time = 15.009 ms
ptxas info    : Compiling entry function '_Z5scaleILi4EEvPffl' for 'sm_90a'
ptxas info    : Function properties for _Z5scaleILi4EEvPffl
    16 bytes stack frame, 24 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 14 registers, used 0 barriers
ptxas info    : Compile time = 1.731 ms
ptxas info    : Compiling entry function '_Z5heavyPKfPfi' for 'sm_90a'
ptxas info    : Function properties for _Z5heavyPKfPfi
    1168 bytes stack frame, 1572 bytes spill stores, 1904 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1168 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 33.856 ms
[2/2] c++ -shared cuda_0.o -o main.so
"""


def test_other_text_has_no_kernels() -> None:
    said = "ptxas info    : Used 8 registers\n9 bytes stack frame, x spill stores"

    assert spilled_bytes(said, "scale", 8) is None
    assert spilled_bytes("Compiling entry function 'scale' for", "scale", 8) is None


@pytest.mark.parametrize(
    ("shown", "registers", "spilled"),
    [
        ("void scale<4>(float*, float, long)", 14, 24),
        ("void scale<1>(float*, float, long)", 8, 0),
        ("void (anonymous namespace)::scale<2>(float*, float, long)", 99, 24),
        ("heavy(float const*, float*, int)", 32, 1572),
        ("sm90_xmma_gemm", 32, None),
    ],
)
def test_a_kernel_is_found_by_the_name_and_registers_that_the_profiler_shows(
    shown: str, registers: int, spilled: int | None
) -> None:
    assert spilled == spilled_bytes(SAID, shown, registers)


@pytest.mark.parametrize(
    ("symbol", "shown"),
    [
        ("_ZN12_GLOBAL__N_15scaleEPf", "void (anonymous namespace)::scale(float*)"),
        ("_ZN3one3two6kernelILi128EEEvv", "void one::two::kernel<128>()"),
        ("plain_c", "plain_c"),
    ],
)
def test_a_mangled_name_contains_the_shown_one(symbol: str, shown: str) -> None:
    said = SAID.replace("_Z5heavyPKfPfi", symbol)

    assert 1572 == spilled_bytes(said, shown, 32)
    assert spilled_bytes(said, "other", 32) is None


@pytest.fixture
def forkserver() -> Iterator[Forkserver]:
    server = Forkserver.start(["tvm_ffi", "tvm_ffi.cpp"])
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.skipif(language("cuda").missing() is not None, reason="no CUDA toolkit")
def test_the_guides_example_is_built_for_one_architecture_and_a_later_build_still_knows_its_kernels(
    forkserver: Forkserver, tmp_path: Path
) -> None:
    candidate = guide_example(language("cuda")).candidate
    cache = BuildCache(tmp_path, most_bytes=1e9)

    begin = time.monotonic()
    built = Builds(cache, DEVICE.architecture, TOOLCHAIN, forkserver).build(
        candidate, Limits(), Patience()
    )
    took_s = time.monotonic() - begin
    again = Builds(cache, DEVICE.architecture, TOOLCHAIN, forkserver).build(
        candidate, Limits(), Patience()
    )

    assert (None, None) == (built.error, again.error)
    assert took_s < 40
    assert built.output == again.output
    assert 0 == spilled_bytes(again.output, "normalize_kernel", 0)
    (library,) = tmp_path.rglob("*.so")
    code = library.read_bytes()
    assert b"sm_90a" in code
    assert b"normalize_kernel" in code
    (commands,) = tmp_path.rglob("build.ninja")
    assert 1 == commands.read_text().count("-gencode")
