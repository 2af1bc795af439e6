"""Every GPU technique's example: built and run as far as this machine can, and judged where there is a device."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio
import technique_samples as samples

from stark.core.evaluation import Correct
from stark.core.judging import Limits
from stark.evaluator.executors import Executor, open_executor
from stark.languages import LANGUAGES, Language
from stark.languages.technique import CUDA_GRAPHS, LIBRARIES, Technique
from support.examples import technique_example

pytest.importorskip("torch")

CUDA, TRITON = LANGUAGES["cuda"], LANGUAGES["triton"]
WRITTEN_IN_CUDA = [technique for technique in CUDA.techniques if technique.name.startswith("cuda/")]
WRITTEN_IN_TRITON = [entry for entry in TRITON.techniques if entry.name.startswith("triton/")]

needs_nvcc = pytest.mark.skipif(CUDA.missing() is not None, reason=str(CUDA.missing()))
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
named = pytest.mark.parametrize


def name_of(value: object) -> str:
    return value.name if isinstance(value, Technique | Language) else str(value)


# CUDA C++, compiled.

# As `load_inline` does, but without loading, which needs a GPU's driver, and all in one file, which
# takes nvcc a third of the time: each example in a namespace of its own, after everybody's includes.
BUILD = """
import pathlib, sys
import tvm_ffi.cpp

includes, bodies, exported = [], [], []

def collect(name, cuda_sources, functions):
    lines = cuda_sources.splitlines()
    includes.extend(line for line in lines if line.startswith("#include"))
    body = [line for line in lines if not line.startswith("#include")]
    names = [f"using of_{name}::{function};" for function in functions]
    bodies.extend([f"namespace of_{name} {{", *body, "}", *names])
    exported.extend(functions)

tvm_ffi.cpp.load_inline = collect
for path in sys.argv[1:]:
    exec(compile(pathlib.Path(path).read_text(), path, "exec"), {"__name__": "loaded"})
tvm_ffi.cpp.build_inline("all", cuda_sources="\\n".join(includes + bodies), functions=exported)
"""


@needs_nvcc
@pytest.mark.slow
def test_the_cuda_examples_compile_for_hopper(tmp_path: Path) -> None:
    """The slowest test of this package: nvcc takes about ten seconds."""
    paths = []
    for technique in WRITTEN_IN_CUDA:
        paths.append(tmp_path / f"{technique.name.replace('/', '_')}.py")
        paths[-1].write_text(technique_example(technique))
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *paths],
        env=os.environ | CUDA.environment(tmp_path / "build", "sm_90"),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    (library,) = (tmp_path / "build").rglob("*.so")
    code = library.read_bytes()
    assert b"sm_90a" in code
    for technique in WRITTEN_IN_CUDA:
        kernels = re.findall(r"__global__ void (\w+)\(", technique_example(technique))
        assert kernels
        assert all(kernel.encode() in code for kernel in kernels)


# Triton, interpreted and compiled.


def found(mode: str, folder: Path) -> dict[str, object]:
    """What `triton_without_gpu.py` says of all examples that are written in Triton."""
    for technique in WRITTEN_IN_TRITON:
        name = technique.name.replace("/", "_")
        (folder / f"{name}.problem.py").write_text(samples.problem_of(technique).source)
        (folder / f"{name}.candidate.py").write_text(technique_example(technique))
    script = Path(__file__).with_name("triton_without_gpu.py")
    done = subprocess.run(
        [sys.executable, script, mode, folder],
        env=os.environ | {"TRITON_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert 0 == done.returncode, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@needs_triton
def test_the_triton_examples_compute_what_their_problems_say(tmp_path: Path) -> None:
    errors = found("interpret", tmp_path)

    assert len(WRITTEN_IN_TRITON) == len(errors)
    assert {} == {name: error for name, error in errors.items() if not float(str(error)) < 1e-6}


@needs_triton
def test_the_triton_examples_compile_for_hopper(tmp_path: Path) -> None:
    ptx = {name: str(kernels) for name, kernels in found("compile", tmp_path).items()}

    assert len(WRITTEN_IN_TRITON) == len(ptx)
    assert "wgmma" in ptx["triton_tensor_cores"]
    assert "wgmma" in ptx["triton_persistent_tma"]
    assert "cp.async.bulk.tensor" in ptx["triton_persistent_tma"]
    assert "ld.global.v4" in ptx["triton_wide_access"]


# Libraries and graphs, as far as they run without a device.


@named("technique", [CUDA_GRAPHS, LIBRARIES], ids=name_of)
def test_what_calls_libraries_computes_what_its_problem_says_on_a_cpu_too(
    technique: Technique,
) -> None:
    import torch

    problem: dict[str, object] = {}
    candidate: dict[str, object] = {}
    exec(samples.problem_of(technique).source, problem)
    exec(technique_example(technique), candidate)
    arguments = problem["get_init_inputs"]()  # type: ignore[operator]
    reference = problem["Model"](*arguments)  # type: ignore[operator]
    ours = candidate["ModelNew"](*arguments)  # type: ignore[operator]
    ours.load_state_dict(reference.state_dict())
    inputs = problem["get_inputs"]()  # type: ignore[operator]
    with torch.no_grad():
        torch.testing.assert_close(ours(*inputs), reference(*inputs))


# On a device, all of them.


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def device() -> AsyncIterator[Executor]:
    judge = open_executor("local:cuda:0", Limits(timing_budget_s=0.2, memory_gb=8.0))
    yield judge
    await judge.close()


@pytest.mark.gpu
@pytest.mark.asyncio(loop_scope="module")
@named(("language", "technique"), samples.taught("triton", "cuda"), ids=name_of)
async def test_the_example_is_correct_on_a_device(
    device: Executor, language: Language, technique: Technique
) -> None:
    candidate = samples.candidate_of(technique, language)

    evaluation = await device.evaluate(samples.problem_of(technique), candidate)

    assert isinstance(evaluation, Correct), evaluation
