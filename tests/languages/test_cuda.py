from __future__ import annotations

import pytest

from stark.languages import LANGUAGES

CUDA = LANGUAGES["cuda"]


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
