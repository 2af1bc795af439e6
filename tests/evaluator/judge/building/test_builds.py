from __future__ import annotations

import re
from pathlib import Path

import pytest

from stark.core.judging import Limits
from stark.evaluator.candidate.sandbox.bounds import AUTOGROUP
from stark.evaluator.judge.building.builds import Builds
from stark.evaluator.judge.building.cache import BuildCache
from stark.evaluator.judge.processes import folders
from stark.evaluator.judge.processes.child import Patience
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.languages import LANGUAGES
from support.candidates import as_candidate
from support.examples import guide_example
from support.nodes import TOOLCHAIN

CANDIDATE = as_candidate("cpp", "print('built')\nclass ModelNew: pass\n")


@pytest.mark.parametrize("lost", ["printed.txt", "kept"])
def test_a_build_of_which_a_part_is_gone_is_built_again(tmp_path: Path, lost: str) -> None:
    server = Forkserver.start([])
    try:
        builds = Builds(BuildCache(tmp_path, most_bytes=1e9), None, TOOLCHAIN, server)
        with builds.in_use(CANDIDATE):
            first = builds.build(CANDIDATE, Limits(), Patience())
            path = first.folder / lost
            path.unlink() if path.is_file() else folders.remove(path)
            again = builds.build(CANDIDATE, Limits(), Patience())
    finally:
        server.close()
    assert again == first
    assert again.error is None and "built" in again.output
    assert path.exists()


@pytest.mark.parametrize(
    ("language", "error", "built"),
    [
        ("pytorch", "0 active drivers ([]). There should only be one.", True),
        ("pytorch", "No CUDA GPUs are available", True),
        ("pytorch", "the file has a fault of its own", False),
        ("cpp", "No CUDA GPUs are available", False),
    ],
)
def test_a_file_that_asks_for_the_device_is_imported_where_there_is_one(
    tmp_path: Path, language: str, error: str, built: bool
) -> None:
    candidate = as_candidate(language, f"class ModelNew: pass\nraise RuntimeError({error!r})\n")
    server = Forkserver.start([])
    try:
        builds = Builds(BuildCache(tmp_path, most_bytes=1e9), None, TOOLCHAIN, server)
        with builds.in_use(candidate):
            found = builds.build(candidate, Limits(), Patience())
    finally:
        server.close()
    assert built == (found.error is None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "replaced", "by", "error"),
    [
        ("cutedsl", "", "", None),
        ("cutedsl", "autovec_copy(held", "autovec_cpy(held", "has no attribute 'autovec_cpy'"),
        ("cutedsl", "(width,), (pack,)), own)", "(1,), (pack,)), own)", "candidate.py"),
        ("triton", "", "", None),
        ("triton", "tl.where(", "tl.were(", "has no attribute 'were'"),
        ("triton", "tl.arange(0, BLOCK)", "tl.arange(0, 3)", "must be a power of 2"),
        ("triton", "x = x.contiguous()", "raise ValueError('it has no values here')", None),
    ],
)
def test_kernels_are_compiled_without_a_device_in_the_sandbox(
    tmp_path: Path, language: str, replaced: str, by: str, error: str | None
) -> None:
    written_in = LANGUAGES[language]
    if lacks := written_in.missing():
        pytest.skip(lacks)
    problem, given = guide_example(written_in)
    candidate = given.model_copy(update={"source": given.source.replace(replaced, by)})
    server = Forkserver.start(written_in.preload)
    try:
        builds = Builds(BuildCache(tmp_path, most_bytes=1e9), "sm_90", TOOLCHAIN, server)
        with builds.in_use(candidate):
            found = builds.build(candidate, Limits(), Patience(), problem=problem.source)
    finally:
        server.close()
    if error is None:
        assert found.error is None
    else:
        assert re.search(error, found.error or "")


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this Linux shares cores among processes only")
@pytest.mark.parametrize("yields", [True, False])
def test_a_build_beside_what_is_timed_leaves_it_the_cores(tmp_path: Path, yields: bool) -> None:
    says = (
        "import os, pathlib\n"
        "class ModelNew: pass\n"
        "print('idle' if os.sched_getscheduler(0) == os.SCHED_IDLE else 'ordinary')\n"
        "print(pathlib.Path('/proc/self/autogroup').read_text().partition('nice')[2])\n"
    )
    candidate = as_candidate("pytorch", says)
    server = Forkserver.start([])
    try:
        cache = BuildCache(tmp_path, most_bytes=1e9)
        builds = Builds(cache, "sm_90", TOOLCHAIN, server, yields=yields)
        with builds.in_use(candidate):
            built = builds.build(candidate, Limits(), Patience())
    finally:
        server.close()

    assert built.output.split() == (["idle", "19"] if yields else ["ordinary", "0"])
