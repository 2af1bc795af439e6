from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stark.languages import LANGUAGES
from support.examples import guide_example

CPP = LANGUAGES["cpp"]

COMPARE = """
import json, pathlib, sys
import torch

def run(path):
    scope = {"__name__": "loaded"}
    exec(compile(pathlib.Path(path).read_text(), path, "exec"), scope)
    return scope

problem, candidate = run(sys.argv[1]), run(sys.argv[2])
reference = problem["Model"](*problem["get_init_inputs"]())
ours = candidate["ModelNew"](*problem["get_init_inputs"]())
ours.load_state_dict(reference.state_dict())
inputs = problem["get_inputs"]()
with torch.no_grad():
    want, got = reference(*inputs).double(), ours(*inputs).double()
    report = {
        "error": ((got - want).square().mean() / want.square().mean()).sqrt().item(),
    }
print(json.dumps(report))
"""


@pytest.mark.slow
@pytest.mark.skipif(CPP.missing() is not None, reason=str(CPP.missing()))
def test_the_guides_example_builds_and_matches_eager(tmp_path: Path):
    for name, source in zip(("problem", "candidate"), guide_example(CPP), strict=True):
        (tmp_path / f"{name}.py").write_text(source.source)
    build_dir = tmp_path / "build"
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, tmp_path / "problem.py", tmp_path / "candidate.py"],
        env=os.environ | CPP.environment(build_dir, None),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert 0 == done.returncode, done.stderr
    report = json.loads(done.stdout)
    assert report["error"] < 2e-6
    assert 1 == len(list(build_dir.rglob("*.so")))


def test_a_candidate_that_compiles_nothing_or_for_a_gpu_is_told_so():
    assert "The file compiles no C++; call tvm_ffi.cpp.load_inline with cpp_sources." == CPP.check(
        "class ModelNew: pass"
    )
    for_gpu = guide_example(CPP).candidate.source.replace("cpp_sources=", "cuda_sources=")
    assert "is for the CPU" in (CPP.check(for_gpu) or "")


def test_torchs_own_builder_is_a_way_too():
    source = (
        "from torch.utils.cpp_extension import load_inline\nload_inline()\nclass ModelNew: pass"
    )
    assert CPP.check(source) is None


def test_torch_compile_is_no_kernel():
    source = "import torch\nclass ModelNew:\n    forward = torch.compile(torch.relu)"
    assert "compiles no C++" in (CPP.check(source) or "")
