from __future__ import annotations

import pytest

from stark.languages import LANGUAGES

TRITON = LANGUAGES["triton"]


@pytest.mark.parametrize(
    "kernel",
    [
        "import triton\n@triton.jit\ndef k(): pass",
        "import triton as tr\n@tr.jit(do_not_specialize=[])\ndef k(): pass",
        "from triton import jit\n@jit\ndef k(): pass",
        "import triton\n@triton.autotune(configs=[], key=[])\n@triton.jit\ndef k(): pass",
        "import triton\nfrom triton.experimental import gluon\n@gluon.jit\ndef g(): pass\n@triton.jit\ndef k(): pass",
    ],
)
def test_a_kernel_is_found_under_every_form_of_the_decorator(kernel: str):
    assert TRITON.check(f"{kernel}\nclass ModelNew: pass") is None


@pytest.mark.parametrize(
    "text",
    [
        "import triton",
        "import torch\n@torch.jit.script\ndef k(): pass",
        "import jax\n@jax.jit\ndef k(): pass",
        "SOURCE = '@triton.jit'",
        "from triton.experimental import gluon\n@gluon.jit\ndef k(): pass",
    ],
)
def test_a_file_without_a_kernel_is_told_so(text: str):
    expected = "The file has no Triton kernel; write one as a function decorated with @triton.jit."
    assert expected == TRITON.check(f"{text}\nclass ModelNew: pass")
