"""The scripts in `examples` run as they are, and the hand-written kernels compute what their problems do."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from stark.languages import LANGUAGES
from support.executor import FakeExecutor
from support.nodes import CPU, correct

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

    for case in getattr(problem, "CASES", [None]):
        inputs = problem.get_inputs() if case is None else problem.get_inputs(case)
        with torch.no_grad():
            torch.testing.assert_close(ours(*inputs), model(*inputs))


def test_the_python_api_in_ten_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a fake judge, since `cli/test_whole_path.py` has a real one."""
    script = (EXAMPLES / "python_api.py").read_text()
    assert len(ast.parse(script).body) - 1 <= 10, "its docstring is not code"
    (tmp_path / "examples").symlink_to(EXAMPLES)  # so that its store is not the checkout's
    monkeypatch.chdir(tmp_path)
    judge = FakeExecutor(lambda candidate: correct(0.5), device=CPU)
    for name in ("sessions", "configuration"):
        monkeypatch.setattr(f"stark.{name}.open_executor", lambda *_, **__: judge)

    exec(compile(script, "python_api.py", "exec"), {})

    best, faster, own, reloaded = capsys.readouterr().out.splitlines()
    assert best == "Kernel(attempt 1, cpp, 0.5 ms, 2.00x vs eager [2.00, 2.00], confirmed)"
    assert faster == "2.00x faster than eager"
    assert own.startswith("correct reference='eager' ratio=2.0")
    assert best in reloaded, "the run is the same when it is loaded again"
    assert (
        judge.evaluated[-1].source == (EXAMPLES / "kernels/layernorm_gelu_residual.py").read_text()
    )


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
