"""A problem solved through the tools alone, with scripted kernels and a real judge on a CPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("mcp")
pytest.importorskip("torch")

from mcp import Client
from mcp_samples import answer

import stark
from stark.core.judging import Limits
from stark.mcp.server import make_server
from stark.mcp.workbench import Workbench
from stark.options import RunOptions
from support.candidates import FAULTS, PROBLEM
from support.sharing import JudgeWithin

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_problem_is_solved_through_the_tools_alone(
    judge_within: JudgeWithin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problem.py").write_text(PROBLEM.source)
    (right, _), (wrong, _) = FAULTS["honest"], FAULTS["wrong everywhere"]
    bench = Workbench(RunOptions(executor="local:cpu", language="pytorch"))
    bench.judge = judge_within(Limits(timing_budget_s=0.05))
    async with bench, Client(make_server(bench)) as client:
        measured = await answer(client, "problem", problem="problem.py")
        failed = await answer(client, "evaluate", problem="problem.py", candidate=wrong)
        checked = await answer(client, "check", problem="problem.py", candidate=right)
        repaired = await answer(
            client, "evaluate", problem="problem.py", candidate=right, parent=1, idea="Multiply."
        )
        best = await answer(client, "best")

    assert "float32[64, 256]" in measured["summary"]
    assert "incorrect" == failed["status"] and not re.search(r"expected -?\d", failed["evidence"])
    assert "correct" == checked["status"]
    assert ("correct", 2) == (repaired["status"], repaired["attempt"]), repaired["evidence"]
    assert (2, False) == (best["attempt"], best["reportable"])
    [one, two] = stark.load_run().tree.nodes
    assert (1, "debug") == (two.parent, two.action) and "incorrect" == one.evaluation.status
    stored = stark.load_run()
    assert stored.kernel is not None and right == stored.kernel.source
