"""A call without a device compiles Triton's kernels and tells Triton's errors; nothing else that it raises counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return self.linear(x) * 2.0


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return [64]
"""

CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2.0 * tl.load(x + at, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        assert x.is_cuda and x.device.type == "cuda"
        x = self.linear(x)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
"""

REHEARSE = """
import sys
from pathlib import Path

from stark.evaluator.candidate.program import import_file
from stark.evaluator.candidate.rehearsal import rehearse

sys.path.insert(0, ".")
path, gpu = Path("candidate.py"), {"capability": 90, "shared": 227 * 1024}
new = import_file("candidate", path).ModelNew
print(rehearse(new, path, Path("problem.py"), gpu, float(sys.argv[1])).get("error", "done"))
"""


def rehearsed(folder: Path, candidate: str, limit_s: float = 60.0) -> str:
    """What a process prints that rehearses a candidate."""
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "candidate.py").write_text(candidate)
    return subprocess.run(
        [sys.executable, "-c", REHEARSE, str(limit_s)],
        cwd=folder,
        env={**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout


def test_a_kernel_is_compiled_without_a_device(tmp_path: Path) -> None:
    pytest.importorskip("triton")

    assert "done\n" == rehearsed(tmp_path, CANDIDATE)

    assert list((tmp_path / "triton").glob("*/double.cubin"))
    assert not list((tmp_path / "triton").glob("*/*.autotune.json"))  # nothing was measured


@pytest.mark.parametrize(
    "forward",
    [
        "raise SystemExit(3)",
        "import ctypes; ctypes.string_at(0)",
        "return torch.cuda.get_device_properties(0)",
        "return x.sum().item()",
    ],
)
def test_what_needs_a_device_ends_it_without_a_fault(forward: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    head, _, _ = CANDIDATE.partition("        assert")

    assert "done\n" == rehearsed(tmp_path, f"{head}        {forward}\n")


def test_what_triton_refuses_is_told_with_its_line(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    wrong = CANDIDATE.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK + 1)")

    told = rehearsed(tmp_path, wrong)

    assert told.startswith("CompilationError: at 2:") and "power of 2" in told
    assert f"line {wrong[: wrong.index('double[')].count(chr(10)) + 1}, in forward" in told


def test_an_error_that_the_program_handles_is_none(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    wrong = CANDIDATE.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK + 1)")
    handled = wrong.replace("        double[", "        try: double[").replace(
        "        return out", "        except Exception: return 2.0 * x\n        return out"
    )

    assert "done\n" == rehearsed(tmp_path, handled)


PRODUCT = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def square(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tile = tl.load(x + at)
    tl.store(out + at, tl.dot(tile, tl.trans(tile)))


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()

    def forward(self, x):
        square[(1,)](x, x, BLOCK=256)
        return x
"""


def test_too_much_shared_memory_is_told_in_tritons_words(tmp_path: Path) -> None:
    pytest.importorskip("triton")

    assert rehearsed(tmp_path, PRODUCT).startswith(
        "OutOfResources: out of resource: shared memory, Required: "
    )


def test_an_assertion_of_triton_without_a_text_is_told_by_its_code(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    sums = "tl.trans(tile), tl.zeros((BLOCK, BLOCK), dtype=tl.float16)"

    told = rehearsed(tmp_path, PRODUCT.replace("tl.trans(tile)", sums))

    assert "AssertionError: assert acc.type" in told


def test_a_loop_without_end_is_left(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    head, _, _ = CANDIDATE.partition("        assert")

    assert "done\n" == rehearsed(tmp_path, f"{head}        while True: pass\n", limit_s=1.0)


def test_without_triton_nothing_happens(tmp_path: Path) -> None:
    plain = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"

    assert "done\n" == rehearsed(tmp_path, plain)
