from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from report_samples import CANDIDATE, RUN, node_of_source, reference

from stark.report.kernel import kernel_file

SOURCES = {
    "plain": CANDIDATE,
    "docstring": '"""Fused."""\n' + CANDIDATE,
    "future": "from __future__ import annotations\n\n" + CANDIDATE,
    "docstring and future": '"""Fused."""\nfrom __future__ import annotations\n' + CANDIDATE,
}


def written(source: str) -> str:
    return kernel_file(RUN, node_of_source(source), reference())


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_source_is_unchanged_and_the_file_parses(source: str) -> None:
    text = written(source)

    assert source.rstrip() in text
    compile(text, "kernel.py", "exec")


def test_the_docstring_says_where_it_comes_from_and_what_it_is_worth() -> None:
    said = ast.get_docstring(ast.parse(written(CANDIDATE)))

    assert said is not None
    for fact in (
        "linear",
        "linear-12ab, attempt 4",
        "2.00x vs eager [2.00, 2.00]: faster",
        'Invented "CPU" \\x',
        "torch 2.13.0",
        "relative RMS error 2e-07",
    ):
        assert fact in said


def test_a_source_keeps_its_own_docstring() -> None:
    text = written(SOURCES["docstring"])

    assert "Fused." == ast.get_docstring(ast.parse(text))
    assert text.startswith("# A kernel for linear")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return tmp_path / "kernel.py"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=folder, timeout=120
    )


def test_it_runs_by_itself_and_finds_itself_right(kernel: Path) -> None:
    kernel.write_text(written(SOURCES["docstring and future"]))

    done = run(kernel.parent, "-I", str(kernel))

    assert 0 == done.returncode, done.stderr
    assert "relative RMS difference to the reference: 0" in done.stdout


def test_it_says_when_the_outputs_differ(kernel: Path) -> None:
    kernel.write_text(written(CANDIDATE.replace("torch.relu(", "1.01 * torch.relu(")))

    done = run(kernel.parent, str(kernel))

    assert 1 == done.returncode
    assert "The outputs differ from the reference's." in done.stderr


def test_as_a_module_it_only_defines_the_kernel(kernel: Path) -> None:
    kernel.write_text(written(CANDIDATE))

    done = run(kernel.parent, "-c", "import kernel; print(kernel.ModelNew.__name__, dir(kernel))")

    assert done.stdout.startswith("ModelNew")
    assert "REFERENCE_SOURCE" not in done.stdout
