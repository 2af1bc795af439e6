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

from stark.core.candidate import Candidate
from stark.core.evaluation import Correct
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import Executor, open_executor
from stark.languages import LANGUAGES, Language
from stark.languages.technique import CUDA_GRAPHS, LIBRARIES, Technique
from support.examples import guide_example, technique_example

pytest.importorskip("torch")

CUDA, TRITON, GLUON, CUTEDSL = (LANGUAGES[name] for name in ("cuda", "triton", "gluon", "cutedsl"))


def written_in(language: Language) -> list[Technique]:
    """The techniques whose examples have kernels in this language."""
    return [each for each in language.techniques if each.name.startswith(f"{language.name}/")]


needs_nvcc = pytest.mark.skipif(CUDA.missing() is not None, reason=str(CUDA.missing()))
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
needs_gluon = pytest.mark.skipif(GLUON.missing() is not None, reason=str(GLUON.missing()))
needs_cutedsl = pytest.mark.skipif(CUTEDSL.missing() is not None, reason=str(CUTEDSL.missing()))
named = pytest.mark.parametrize

HOPPER = Path(__file__).parents[2] / "examples" / "hopper"
HOPPER_KERNELS = sorted((HOPPER / "kernels").glob("*.py"))
KEEPING_PTX = {"CUTE_DSL_KEEP": "ptx"}


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
    for technique in written_in(CUDA):
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
    for technique in written_in(CUDA):
        kernels = re.findall(r"__global__ void (\w+)\(", technique_example(technique))
        assert kernels
        assert all(kernel.encode() in code for kernel in kernels)


# Triton and Gluon, interpreted and compiled.


def examples(language: Language) -> dict[str, tuple[str, str]]:
    """The problem and the candidate of every example in this language, by name; the guide's is called `guide`."""
    guide = guide_example(language)
    kernels = {
        path.stem: (problem_of(path).read_text("utf-8"), path.read_text("utf-8"))
        for path in HOPPER_KERNELS
        if path.stem.endswith(f"_{language.name}")
    }
    techniques = {
        each.name.partition("/")[2]: (samples.problem_of(each).source, technique_example(each))
        for each in written_in(language)
    }
    return kernels | techniques | {"guide": (guide.problem.source, guide.candidate.source)}


def problem_of(kernel: Path) -> Path:
    """The problem in `examples/hopper` that a kernel there is for."""
    return HOPPER / f"{kernel.stem.rpartition('_')[0]}.py"


def found(mode: str, language: Language, folder: Path) -> dict[str, object]:
    """What `triton_without_gpu.py` says of all examples in a language that Triton compiles."""
    for name, (problem, candidate) in examples(language).items():
        (folder / f"{name}.problem.py").write_text(problem)
        (folder / f"{name}.candidate.py").write_text(candidate)
    return answer_of("triton_without_gpu.py", mode, folder)


def answer_of(script: str, *arguments: str | Path, **variables: str) -> dict[str, object]:
    """What a script beside this file prints as JSON, run with a cache of its own below the last argument."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(script), *arguments],
        env=os.environ | {"TRITON_CACHE_DIR": f"{arguments[-1]}/cache", **variables},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert 0 == done.returncode, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@needs_triton
def test_the_triton_examples_compute_what_their_problems_say(tmp_path: Path) -> None:
    errors = found("interpret", TRITON, tmp_path)

    assert set(examples(TRITON)) == set(errors)
    assert {} == {name: error for name, error in errors.items() if not float(str(error)) < 1e-6}


@needs_triton
def test_the_triton_examples_compile_for_hopper(tmp_path: Path) -> None:
    ptx = {name: str(kernels) for name, kernels in found("compile", TRITON, tmp_path).items()}

    assert set(examples(TRITON)) == set(ptx)
    assert "wgmma" in ptx["tensor_cores"]
    assert "wgmma" in ptx["persistent_tma"]
    assert "cp.async.bulk.tensor" in ptx["persistent_tma"]
    assert "ld.global.v4" in ptx["wide_access"]


@needs_gluon
@pytest.mark.slow
def test_the_gluon_examples_compile_for_hopper(tmp_path: Path) -> None:
    ptx = {name: str(kernels) for name, kernels in found("compile", GLUON, tmp_path).items()}

    assert set(examples(GLUON)) == set(ptx)
    assert "ld.global.v4" in ptx["guide"]
    assert "ld.global.v4" in ptx["layouts"]
    for name in ("rows_in_flight", "llama_residual_norm_gluon"):
        assert "cp.async.bulk.tensor" in ptx[name]
        assert "st.global.v4" in ptx[name]
    for name in ("warpgroup_mma", "warp_specialization", "llama_mlp_up_gluon"):
        assert "cp.async.bulk.tensor" in ptx[name]
        assert "wgmma.mma_async" in ptx[name]
    assert "setmaxnreg" in ptx["warp_specialization"]


# CuTe DSL, compiled.


@needs_cutedsl
@pytest.mark.slow
def test_the_cute_examples_compile_for_hopper(tmp_path: Path) -> None:
    for name, (_, candidate) in examples(CUTEDSL).items():
        (tmp_path / f"{name}.py").write_text(candidate)

    variables = CUTEDSL.environment(tmp_path / "build", "sm_90") | KEEPING_PTX
    answer = answer_of("cute_without_gpu.py", tmp_path, **variables)

    ptx = {name: str(kernels) for name, kernels in answer.items()}
    assert set(examples(CUTEDSL)) == set(ptx)
    assert all(".target sm_90a" in kernels for kernels in ptx.values())
    for name in ("guide", "rows", "tiled_copies", "llama_residual_norm_cutedsl"):
        assert re.search(r"ld\.global\S*\.v4", ptx[name])
    for name in ("warpgroup_mma", "llama_mlp_up_cutedsl"):
        assert "cp.async.bulk.tensor" in ptx[name]
        assert "wgmma.mma_async" in ptx[name]


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
@named(("language", "technique"), samples.taught("triton", "cuda", "gluon", "cutedsl"), ids=name_of)
async def test_the_example_is_correct_on_a_device(
    device: Executor, language: Language, technique: Technique
) -> None:
    if (lacking := language.missing()) is not None:
        pytest.skip(lacking)
    candidate = samples.candidate_of(technique, language)

    evaluation = await device.evaluate(samples.problem_of(technique), candidate)

    assert isinstance(evaluation, Correct), evaluation


@pytest.mark.gpu
@pytest.mark.asyncio(loop_scope="module")
@named("kernel", HOPPER_KERNELS, ids=lambda path: path.stem)
async def test_a_hand_written_kernel_is_correct_on_hopper(device: Executor, kernel: Path) -> None:
    source = problem_of(kernel).read_text("utf-8")
    problem = Problem(name=problem_of(kernel).stem, source=source)
    language = kernel.stem.rpartition("_")[2]
    if (lacking := LANGUAGES[language].missing()) is not None:
        pytest.skip(lacking)
    candidate = Candidate(language=language, source=kernel.read_text("utf-8"))

    evaluation = await device.evaluate(problem, candidate)
    assert isinstance(evaluation, Correct), evaluation
