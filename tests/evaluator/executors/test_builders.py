"""A Ray cluster of a node that builds and a node that judges, with file systems of their own as far as builds go."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.cluster_utils")

from stark.core.evaluation import BuildFailed, Correct
from stark.core.judging import Limits
from stark.core.toolchain import Toolchain
from stark.evaluator.executors import cluster, engine
from stark.evaluator.executors.cluster import RayExecutor
from stark.languages import language
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.examples import guide_example

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True).returncode
        != 0,
        reason="this user may not mount anything",
    ),
]

ADDS = '''
import torch
import tvm_ffi.cpp

library = tvm_ffi.cpp.load_inline("adds", cpp_sources="""
int64_t one(int64_t n) { return n + 1; }""", functions=["one"])
assert library.one(1) == 2
'''
"""Compiles a function, in front of an honest candidate."""

HONEST = FAULTS["honest"][0]


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster whose head has no processors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("STARK_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(engine, "LOST_PAUSE_S", 0.2)
        patch.setattr(cluster, "NAMESPACE", "building")
        nodes = ray.cluster_utils.Cluster()
        nodes.add_node(num_cpus=0, include_dashboard=False)
        for _ in range(2):
            nodes.add_node(num_cpus=2)
        yield nodes
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture(scope="module")
def caches(three_nodes: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The builds of the judge, and those of the builder, to which they seem to be at the same place."""
    return Path(os.environ["STARK_CACHE"]), tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def executor(three_nodes: Any, caches: tuple[Path, Path]) -> RayExecutor:
    return executor_at(f"{three_nodes.address}?device=cpu&judges=1&builders=1", caches)


def executor_at(text: str, caches: tuple[Path, Path]) -> RayExecutor:
    here, there = caches
    start = (
        f"mount --bind {there} {here} && echo builder > /proc/sys/kernel/hostname && "
        f'exec {sys.executable} -m stark.evaluator.judge.building "$@"'
    )
    command = ["unshare", "--mount", "--uts", "sh", "-c", start, "sh"]
    return RayExecutor(text, Limits(timing_budget_s=0.2), build_command=command)


def libraries(cache: Path) -> dict[str, int]:
    """The libraries of finished builds, and when they were linked."""
    return {
        str(path.relative_to(cache)): path.stat().st_mtime_ns
        for path in cache.glob("builds/*/kept/**/*.so")
    }


async def test_what_a_builder_has_built_is_run_by_a_judge_that_compiles_nothing(
    executor: RayExecutor, caches: tuple[Path, Path]
) -> None:
    here, there = caches

    found = await executor.evaluate(PROBLEM, as_candidate("cpp", ADDS + HONEST))

    assert isinstance(found, Correct), found
    assert 1 == len(libraries(there))
    assert libraries(there) == libraries(here)


async def test_a_candidate_that_compiles_nowhere_has_failed(executor: RayExecutor) -> None:
    wrong = as_candidate("cpp", ADDS.replace("n + 1", "m + 1") + HONEST)

    found = await executor.evaluate(PROBLEM, wrong)

    assert isinstance(found, BuildFailed)
    assert "was not declared" in found.error


async def test_a_compilers_error_that_only_a_builder_has_blames_nobody(
    executor: RayExecutor, caches: tuple[Path, Path]
) -> None:
    here, there = caches
    fails = '"#error No space left on device" if os.uname().nodename == "builder" else'
    source = ADDS.replace("adds", "fails").replace("cpp_sources=", f"cpp_sources={fails} ")
    before = len(libraries(here)), len(libraries(there))

    found = await executor.evaluate(PROBLEM, as_candidate("cpp", f"import os\n{source}{HONEST}"))

    assert isinstance(found, Correct), found
    assert (before[0] + 1, before[1]) == (len(libraries(here)), len(libraries(there)))


async def test_a_builder_says_what_it_is(executor: RayExecutor) -> None:
    found = await executor.hellos()

    (builder,) = (said for name, said in found.items() if name.startswith("builder"))
    assert isinstance(builder, Toolchain)
    assert "a C++ compiler" in builder.versions


async def test_a_builder_that_is_killed_at_work_blames_nobody(
    executor: RayExecutor, caches: tuple[Path, Path]
) -> None:
    here, there = caches
    slow = as_candidate(
        "cpp", "import time\ntime.sleep(2)\n" + ADDS.replace("adds", "slow") + HONEST
    )
    waiting = asyncio.create_task(executor.evaluate(PROBLEM, slow))
    before = set(there.glob("builds/*"))
    for _ in range(1000):
        if set(there.glob("builds/*/work")) - before:
            break
        await asyncio.sleep(0.02)
    service = next(pid for pid in building() if ran_at(pid, here))
    os.kill(parent(service), signal.SIGKILL)
    found = await waiting

    assert isinstance(found, Correct), found
    assert set(libraries(there)) < set(libraries(here)), "the judge has built it by itself"


async def test_the_builder_that_follows_is_used(
    executor: RayExecutor, caches: tuple[Path, Path]
) -> None:
    _, there = caches
    builds = len(libraries(there))
    for number in range(30):
        later = as_candidate("cpp", ADDS.replace("adds", f"later_{number}") + HONEST)
        assert isinstance(await executor.evaluate(PROBLEM, later), Correct)
        if len(libraries(there)) > builds:
            break
        await asyncio.sleep(1)

    assert len(libraries(there)) > builds
    await executor.close()


@pytest.mark.gpu
async def test_cuda_that_was_built_without_a_gpu_runs_on_one(
    three_nodes: Any, caches: tuple[Path, Path]
) -> None:
    here, there = caches
    three_nodes.add_node(num_cpus=1, num_gpus=1)
    on_gpu = executor_at(f"{three_nodes.address}?device=cuda&judges=1&builders=1", caches)
    example = guide_example(language("cuda"))
    before = libraries(there)

    found = await on_gpu.evaluate(example.problem, example.candidate)

    assert isinstance(found, Correct), found
    new = libraries(there).keys() - before
    assert 1 == len(new)
    assert all(libraries(there)[path] == libraries(here)[path] for path in new)
    await on_gpu.close()


def building() -> Iterator[int]:
    """Build services, of whomever."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"stark.evaluator.judge.building" in words:
            yield int(path.parent.name)


def ran_at(pid: int, cache: Path) -> bool:
    """Whether a process was started with this cache."""
    return f"STARK_CACHE={cache}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
