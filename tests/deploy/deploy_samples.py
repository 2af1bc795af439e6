"""Hand-written problem files and kernels for the modules of `userpkg`."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

from stark.deploy import guard

PROBLEM = '''"""Gated of userpkg.blocks."""
import torch
from torch import nn

CASES = {"small": 1.0, "large": 2.0}
ORIGINAL = {
    "name": "userpkg.blocks:Gated",
    "arguments": ["x", "mask"],
    "constants": {"weights": "False"},
    "training": False,
    "attributes": {"": {"scale": "0.5", "config.width": "16"}, "inner": {"in_features": "16"}},
    "versions": {"userpkg": "1.0"},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.gate = nn.Linear(16, 16, bias=False)
        self.register_buffer("shift", torch.full((16,), 0.25))
        self.train(False)

    def forward(self, x, mask):
        gate = torch.sigmoid(self.gate(x)) * mask
        return 0.5 * torch.tanh(self.inner(x)) * gate + self.shift, None


def get_inputs(case="small"):
    rows = {"small": 4, "large": 32}[case]
    return [torch.randn(2, rows, 16), torch.randint(0, 2, (2, rows, 1)).float()]


def get_init_inputs():
    return []
'''

KERNEL = """import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.gate = nn.Linear(16, 16, bias=False)
        self.register_buffer("shift", torch.full((16,), 0.25))

    def forward(self, x, mask):
        both = torch.cat([self.inner.weight, self.gate.weight])
        inner, gate = torch.nn.functional.linear(x, both).chunk(2, dim=-1)
        inner = torch.tanh(inner + self.inner.bias)
        return torch.addcmul(self.shift, inner, torch.sigmoid(gate) * mask, value=0.5)
"""


MODEL_OF_SCALE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(256))

    def forward(self, x):
        return torch.relu(x) * self.weight


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""

SCALE_TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale(x, weight, out, width: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, width)
    value = tl.load(x + row * width + columns)
    tl.store(out + row * width + columns, tl.maximum(value, 0.0) * tl.load(weight + columns))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(256))

    def forward(self, x):
        out = torch.empty_like(x)
        scale[(x.shape[0],)](x, self.weight, out, x.shape[1])
        return out
"""


def kernel(
    source: str = KERNEL,
    problem: str = PROBLEM,
    name: str = "gated_test",
    device: str = "cpu",
    architecture: str = platform.machine(),
) -> guard.Kernel:
    """A kernel that was not judged, by default for this machine's CPU."""
    file = Path(tempfile.mkdtemp()) / f"{name}.py"  # where Triton reads the source
    file.write_text(source)
    scope: dict[str, type] = {"__name__": name}
    exec(compile(source, str(file), "exec"), scope)
    return guard.Kernel(
        scope["ModelNew"], problem, name=name, device=device, architecture=architecture
    )
