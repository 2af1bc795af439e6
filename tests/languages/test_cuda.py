from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stark.languages import LANGUAGES
from support.examples import guide_example

CUDA = LANGUAGES["cuda"]

# Compiles as `load_inline` does, but does not load: that needs a GPU's driver.
COMPILE = """
import pathlib, sys
import tvm_ffi.cpp
tvm_ffi.cpp.load_inline = lambda name, **given: tvm_ffi.cpp.build_inline(name, **given)
exec(compile(pathlib.Path(sys.argv[1]).read_text(), sys.argv[1], "exec"), {"__name__": "loaded"})
"""


@pytest.mark.slow
@pytest.mark.skipif(CUDA.missing() is not None, reason=str(CUDA.missing()))
def test_the_guides_example_compiles_for_one_architecture_without_a_gpu(tmp_path: Path):
    candidate = tmp_path / "candidate.py"
    candidate.write_text(guide_example(CUDA).candidate.source)
    build_dir = tmp_path / "build"
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, candidate],
        env=os.environ | CUDA.environment(build_dir, "sm_90"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert 0 == done.returncode, done.stderr
    assert time.monotonic() - begin < 40
    (library,) = build_dir.rglob("*.so")
    code = library.read_bytes()
    assert b"sm_90a" in code
    assert b"normalize_kernel" in code
    (commands,) = build_dir.rglob("build.ninja")
    assert 1 == commands.read_text().count("-gencode")


@pytest.mark.parametrize(
    "use",
    [
        "import tvm_ffi.cpp\ntvm_ffi.cpp.load_inline('k', cuda_sources=SOURCE)",
        "from torch.utils.cpp_extension import load_inline\nload_inline('k', '', '__global__ void f();')",
        "from torch.utils.cpp_extension import load_inline as l\nl('k', '', cuda_sources=[SOURCE])",
        "from torch.utils.cpp_extension import *\nload_inline('k', '', cuda_sources=SOURCE)",
        "from torch.utils.cpp_extension import load_inline\nload_inline('k', '', with_cuda=True)",
        "from torch.utils.cpp_extension import load_inline\nload_inline(*given, '__global__ void f();')",
        "from torch.utils.cpp_extension import load\nload('k', ['k.cu'])",
        "import tvm_ffi.cpp\ntvm_ffi.cpp.load('k', cuda_files=[path])",
        "from tvm_ffi import cpp\ncpp.load_inline('k', cpp_sources='#include <cublas_v2.h>')",
        "from torch.utils.cpp_extension import load_inline\nload_inline('k', 'at::Tensor f(at::Tensor);')",
        "from tvm_ffi import cpp\ncpp.load_inline('k', cpp_sources=A)\ncpp.load_inline('l', cuda_sources=B)",
        "import torch\nfrom tvm_ffi import cpp\ncpp.load_inline('k', cpp_sources=A)\ntorch.cuda.current_stream()",
        "import torch\ntorch.cuda._compile_kernel('')",
        "from cuda.bindings import nvrtc\nnvrtc.nvrtcCreateProgram()",
        "import cupy\ncupy.RawKernel('', '')",
    ],
)
def test_every_way_to_compile_cuda_is_accepted(use: str):
    assert CUDA.check(f"{use}\nclass ModelNew: pass") is None


@pytest.mark.parametrize(
    "use",
    [
        "import tvm_ffi.cpp\ntvm_ffi.cpp.load_inline('k', cpp_sources='void f();', functions=['f'])",
        "from torch.utils.cpp_extension import load_inline\nload_inline('k', SOURCE)",
    ],
)
def test_plain_cpp_is_no_cuda_candidate(use: str):
    source = f"{use}\nclass ModelNew: pass"
    assert (
        "The file compiles no CUDA; call tvm_ffi.cpp.load_inline with cuda_sources."
        == CUDA.check(source)
    )
    assert LANGUAGES["cpp"].check(source) is None


def test_plain_pytorch_is_no_cuda_candidate():
    source = "import torch\nclass ModelNew(torch.nn.Module):\n    forward = torch.relu"
    assert (
        "The file compiles no CUDA; call tvm_ffi.cpp.load_inline with cuda_sources."
        == CUDA.check(source)
    )
