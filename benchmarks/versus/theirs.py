"""Evaluates the candidates with KernelBench's own `eval_kernel_against_ref`, each in a separate process.

Follows its `scripts/eval_from_generations.py`: a new process and build folder for each candidate, 5 correctness trials,
100 trials timed by device events, and a limit of 180 seconds. Every choice favours KernelBench: imports, the CUDA context
and the process's start are not counted, a route's libraries are imported before the clock starts, and a dead process is
noticed at once (KernelBench's own pool waits for the limit).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stark.core.problem import Problem
from stark.languages.building import toolkit_environment
from stark.languages.tools import search_path
from versus.cases import Case
from versus.kernelbench_child import absent
from versus.results import FAILED, Finding, Results

LIMIT_S = 180.0
"""KernelBench's default."""

CHILD = Path(__file__).with_name("kernelbench_child.py")

Ask = Callable[[Path, str, Case, Problem, float], "Finding | None"]


def judge(
    checkout: Path,
    device: str,
    results: Results,
    cases: Sequence[Case],
    problems: Mapping[str, Problem],
    deadline: float,
    ask: Ask | None = None,
) -> None:
    """Evaluate the candidates without a verdict until the deadline."""
    if absent():
        results.note(
            f"theirs: {', '.join(absent())} not installed; KernelBench imports them without using them to evaluate, "
            "so stubs that fail when used replaced them"
        )
    for case in results.missing("theirs", cases):
        left_s = deadline - time.monotonic()
        found = None
        if left_s > 0:
            found = (ask or evaluate)(checkout, device, case, problems[case.spec], left_s)
        if found is None:
            print("time is up before KernelBench has evaluated all candidates", flush=True)
            return
        results.add("theirs", case, found)


def evaluate(
    checkout: Path, device: str, case: Case, problem: Problem, left_s: float
) -> Finding | None:
    """KernelBench's finding on one candidate; None if the deadline came before its own limit."""
    with tempfile.TemporaryDirectory(prefix="kernelbench-", ignore_cleanup_errors=True) as folder:
        answer = Path(folder, "answer.json")
        asked = Path(folder, "asked.json")
        asked.write_text(json.dumps(_request(checkout, device, case, problem, folder)))
        begin = time.monotonic()
        with Path(folder, "said.txt").open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-P", str(CHILD), str(asked)],
                stdout=said,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_tools(), **_fresh_caches(folder)},
                cwd=folder,
                start_new_session=True,
            )
            ended = _wait(process, min(LIMIT_S, left_s))
        process_s = time.monotonic() - begin
        words = Path(folder, "said.txt").read_bytes().decode("utf-8", "replace")[-1000:]
        if answer.exists():
            found = json.loads(answer.read_text())
            return Finding(
                verdict(found), found["seconds"], found["said"] or words, process_s=process_s
            )
    if not ended:
        timed_out = Finding("timed_out", LIMIT_S, words, process_s=process_s)
        return timed_out if left_s >= LIMIT_S else None
    if process.returncode < 0:
        said_of_death = f"died by signal {-process.returncode}: {words}"
        return Finding("crashed", process_s, said_of_death, process_s=process_s)
    return Finding(FAILED, process_s, words, process_s=process_s)


def verdict(found: Mapping[str, object]) -> str:
    """KernelBench's result as a status of STARK. A CUDA error counts as `crashed`; KernelBench says not compiled."""
    wrong = found["errors"]
    assert isinstance(wrong, list)
    if found["correct"]:
        return "correct"
    if "cuda_error" in wrong or "runtime_error" in wrong:
        return "crashed"
    return "incorrect" if found["compiled"] else "build_failed"


def _request(
    checkout: Path, device: str, case: Case, problem: Problem, folder: str
) -> dict[str, object]:
    return {
        "checkout": str(checkout.expanduser().resolve()),
        "problem": problem.source,
        "candidate": case.candidate.source,
        "route": case.route,
        "backend": case.candidate.language,
        "device": device,
        "folder": folder,
    }


def _tools() -> dict[str, str]:
    """The paths of nvcc and ninja, as for STARK's own builds."""
    return {"PATH": search_path(), **toolkit_environment(None)}


def _fresh_caches(folder: str) -> dict[str, str]:
    """Empty caches, so nothing from an earlier candidate is reused."""
    return {
        "TVM_FFI_CACHE_DIR": f"{folder}/tvm_ffi",
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "CUDA_CACHE_PATH": f"{folder}/cuda",
    }


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Wait, then kill the whole process group. Returns whether the process ended by itself."""
    try:
        process.wait(limit_s)
        ended = True
    except subprocess.TimeoutExpired:
        ended = False
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return ended
