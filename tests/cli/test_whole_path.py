"""The command line, a shell script as the model, and the real judge on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_samples import BETTER, GOOD, Stark, candidate_source

from stark.languages import language
from support.examples import guide_example

SMALL = guide_example(language("cpp")).problem.source.replace("ROWS = 4096", "ROWS = 256")


@pytest.mark.long
@pytest.mark.judge
def test_a_kernel_is_found_judged_and_runs_by_itself(stark: Stark, workplace: Path) -> None:
    (workplace / "problem.py").write_text(SMALL)
    wrong = candidate_source(BETTER).replace("*= scale", "*= 2 * scale")
    for number, source in enumerate((wrong, candidate_source(GOOD)), start=1):
        (workplace / f"reply-{number}.md").write_text(f"```python\n{source}```\n")

    ended = stark(
        *("optimize", "problem.py", "--executor", "local:cpu", "--strategy", "stark:latest"),
        *("--model", "exec:sh model.sh", "--attempts", "2", "--output", "kernel.py", "--json"),
        "--no-sanitizer",
    )
    ran = subprocess.run(
        [sys.executable, "kernel.py"], capture_output=True, text=True, timeout=120, cwd=workplace
    )

    assert 0 == ended.code, ended.err
    assert ["incorrect", "correct"] == [a["status"] for a in ended.document["attempts"]]
    assert 1 == ended.document["failures_repaired"]
    assert 0 == ran.returncode, ran.stderr
    assert "relative RMS difference to the reference" in ran.stdout


@pytest.mark.judge
def test_a_bench_is_judged_for_real(stark: Stark, workplace: Path) -> None:
    folder = workplace / "small"
    folder.mkdir()
    (folder / "problem.py").write_text(SMALL)
    # Wrong, so that there is no final check, which would take half a minute.
    wrong = candidate_source(BETTER).replace("*= scale", "*= 2 * scale")
    (workplace / "reply-1.md").write_text(f"```python\n{wrong}```\n")

    ended = stark(
        *("bench", "run", "small", "--strategy", "sampling", "--attempts", "1"),
        *("--executor", "local:cpu", "--model", "exec:sh model.sh", "--runs", "1", "--json"),
    )

    assert 0 == ended.code, ended.err
    shown = stark("show", "last", "1", "--json").document
    [summary], [run] = ended.document["summaries"], ended.document["runs"]
    assert (0.0, 0.0, 1) == (summary["success"], summary["correct_share"], summary["attempts"])
    assert "incorrect" == shown["status"]
    assert run["active_s"] > 0
