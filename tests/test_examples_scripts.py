"""The scripts in `examples` run as they are, and the hand-written kernels compute what their problems do."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stark.languages import LANGUAGES
from support.executor import FakeExecutor
from support.nodes import CPU

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
CPP = LANGUAGES["cpp"]


def module(name: str) -> ModuleType:
    """An example, imported."""
    spec = importlib.util.spec_from_file_location(Path(name).name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


needs_cpp = pytest.mark.skipif(CPP.missing() is not None, reason=str(CPP.missing()))


@needs_cpp
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in (EXAMPLES / "kernels").glob("*.py")))
def test_a_hand_written_kernel_is_correct(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    for variable, value in CPP.environment(tmp_path, None).items():
        monkeypatch.setenv(variable, value)
    problem, kernel = module(name), module(f"kernels/{name}")
    model, ours = (
        program(*problem.get_init_inputs()) for program in (problem.Model, kernel.ModelNew)
    )
    ours.load_state_dict(model.state_dict())
    inputs = problem.get_inputs()

    with torch.no_grad():
        torch.testing.assert_close(ours(*inputs), model(*inputs))


@needs_cpp
@pytest.mark.judge
def test_the_python_api_in_ten_lines(tmp_path: Path) -> None:
    script = (EXAMPLES / "python_api.py").read_text()
    assert len(ast.parse(script).body) - 1 <= 10, "its docstring is not code"
    (tmp_path / "examples").symlink_to(EXAMPLES)  # so that its store is not the checkout's

    ended = subprocess.run(
        [sys.executable, "-c", script.replace("attempts=2", "attempts=1")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=600,
    )

    assert 0 == ended.returncode, ended.stderr
    best, faster, own, reloaded = ended.stdout.splitlines()
    assert best.startswith("Kernel(attempt 1, cpp, ") and best.endswith(" confirmed)")
    assert faster.endswith("x faster than eager")
    assert own.startswith("correct reference='eager' ratio=")
    assert best in reloaded, "the run is the same when it is loaded again"


@pytest.mark.slow
async def test_three_runs_share_a_dollar(tmp_path: Path) -> None:
    judge = FakeExecutor(device=CPU)

    ledger, results = await module("shared_budget").main(judge, f"sqlite:///{tmp_path}/runs.db")

    assert 3 == len(results)
    assert all(result.ended is None for result in results), "each can be resumed"
    spent = sum(result.spent.dollars for result in results)
    assert spent == pytest.approx(ledger.spent.dollars)
    one_call = max(call.reply.usage.dollars for r in results for call in r.calls)
    assert 1 <= spent < 1 + one_call
    assert (
        {kernel.read_text() for kernel in (EXAMPLES / "kernels").glob("*.py")}
        >= {candidate.source for candidate in judge.evaluated}
        != set()
    )
    assert judge.closed
