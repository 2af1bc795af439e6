"""Provides small candidates with known faults, to test executors and judges.

They compute in PyTorch, so they run on any device. `as_candidate` adds a kernel that is never called, because every
language requires one.
"""

from __future__ import annotations

from stark.core.candidate import Candidate
from stark.core.problem import Problem

PROBLEM = Problem(
    name="scaled_relu",
    source="""
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(x) * self.scale

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return [256]
""",
)

_MODULE = """
import torch
import torch.nn as nn
{imports}

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
{construction}

    def forward(self, x):
{body}
"""

_HONEST = "        return torch.relu(x) * self.scale"


def _module(body: str = _HONEST, imports: str = "", construction: str = "") -> str:
    return _MODULE.format(imports=imports, construction=construction, body=body)


_ENDLESS_KERNEL = """        if x.is_cuda:
            torch.cuda._sleep(1 << 62)
        while not x.is_cuda:
            torch.relu(x)
        torch.cuda.synchronize()
        return torch.relu(x) * self.scale"""

_EXHAUST = """        held = []
        while True:
            held.append(torch.ones(1 << 26, device=x.device))"""

_COMPILATION_ERROR = """
class CompilationError(Exception):
    __module__ = 'triton.compiler.errors'
"""

FAULTS: dict[str, tuple[str, str]] = {
    "honest": (_module(), "correct"),
    "wrong everywhere": (_module("        return torch.relu(x) + self.scale"), "incorrect"),
    "wrong in one element": (
        _module("        y = torch.relu(x) * self.scale\n        y[-1, -1] += 1\n        return y"),
        "incorrect",
    ),
    "half precision": (
        _module("        return (torch.relu(x).half() * self.scale.half()).float()"),
        "incorrect",
    ),
    "another shape": (_module("        return torch.relu(x)[:, :8] * self.scale[:8]"), "incorrect"),
    "writes nothing": (
        _module("        return torch.full_like(x, float('nan'))"),
        "incorrect",
    ),
    "changes its input": (_module("        return x.relu_() * self.scale"), "incorrect"),
    "raises": (_module("        raise ValueError('nothing works')"), "crashed"),
    "raises on import": (_module(imports="raise RuntimeError('no import')"), "build_failed"),
    "does not compile when called": (
        _module(
            "        raise CompilationError('at 2:14: no such thing')", imports=_COMPILATION_ERROR
        ),
        "build_failed",
    ),
    "does not parse": ("class ModelNew(:\n    pass\n", "build_failed"),
    "segfaults": (_module("        import ctypes\n        ctypes.string_at(0)"), "crashed"),
    "exits": (_module("        import os\n        os._exit(0)"), "crashed"),
    "exits politely": (_module("        raise SystemExit(0)"), "crashed"),
    "raises half a character": (_module("        raise ValueError('\\ud800')"), "crashed"),
    "dies by an unnamed signal": (
        _module("        import os\n        os.kill(os.getpid(), 40)"),
        "crashed",
    ),
    "nests too deeply": (_module(imports="x = " + "-" * 100_000 + "1"), "build_failed"),
    "leaves the channel to another": (
        _module("        import os\n        os.system('sleep 30 &')\n        os._exit(0)"),
        "crashed",
    ),
    "loops forever": (_module("        while True:\n            pass"), "timed_out"),
    "loops forever on import": (_module(imports="while True:\n    pass"), "timed_out"),
    "loops forever in a kernel": (_module(_ENDLESS_KERNEL), "timed_out"),
    "prints 100 MB": (_module("        print('x' * 100_000_000)\n" + _HONEST), "correct"),
    "exhausts memory": (_module(_EXHAUST), "out_of_memory"),
    "leaves a process behind": (
        _module(
            "        import subprocess\n"
            "        subprocess.Popen(['sleep', '777'], start_new_session=True)\n" + _HONEST
        ),
        "correct",
    ),
}
"""By behaviour: the source, and the expected status."""

_UNUSED = {
    "cpp": """
def _never_called():
    import tvm_ffi.cpp
    return tvm_ffi.cpp.load_inline("unused", cpp_sources="", functions=[])
""",
    "cuda": """
def _never_called():
    import tvm_ffi.cpp
    return tvm_ffi.cpp.load_inline("unused", cuda_sources="void unused();", functions=[])
""",
    "triton": """
import triton
import triton.language as tl

@triton.jit
def _never_launched(x, n):
    pass
""",
    "gluon": """
from triton.experimental import gluon

@gluon.jit
def _never_launched(x, n):
    pass
""",
    "cutedsl": """
def _never_called():
    import cutlass.cute as cute
    return cute.kernel(print)
""",
    "pytorch": "",
}


def as_candidate(language: str, source: str) -> Candidate:
    """The source as a candidate in a language."""
    return Candidate(language=language, source=source + _UNUSED[language])
