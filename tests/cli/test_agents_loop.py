"""The commands of an agent's loop: `problem`, `check`, `evaluate --keep`, and a search that continues from there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_samples import BETTER, BROKEN, GOOD, Stark, candidate_source

import stark as api
from stark.core.evaluation import Evaluation
from stark.core.node import ROOT
from stark.core.problem import Problem
from stark.core.reference import Reference
from support.executor import FakeExecutor
from support.nodes import correct, noisy

pytestmark = pytest.mark.usefixtures("executor")


@pytest.fixture(autouse=True)
def candidates(workplace: Path) -> None:
    for mark in (GOOD, BETTER, BROKEN):
        (workplace / f"{mark}.py").write_text(candidate_source(mark))


def test_the_problem_is_measured_and_its_guide_printed_on_request(stark: Stark) -> None:
    short, full = stark("problem", "problem.py"), stark("problem", "problem.py", "--guide")

    assert 0 == short.code
    assert "eager PyTorch takes" in short.out and "Languages: cpp, pytorch" in short.out
    assert "## The form" not in short.out and "## The form" in full.out
    document = stark("problem", "problem.py", "--json").document
    assert (1, "problem", None) == tuple(document[k] for k in ("version", "problem", "guide"))


def test_a_language_that_the_device_cannot_run_is_refused(stark: Stark) -> None:
    ended = stark("problem", "problem.py", "--guide", "--language", "triton")

    assert 2 == ended.code and "choose one of cpp, pytorch" in ended.err


def test_a_check_shows_no_times(stark: Stark, executor: FakeExecutor) -> None:
    good, broken = (
        stark("check", "problem.py", "good.py"),
        stark("check", "problem.py", "broken.py"),
    )

    assert (0, 1) == (good.code, broken.code)
    assert good.out.startswith("good.py: correct\n") and " ms" not in good.out
    assert "relative error 0.31" in broken.out
    assert 2 == len(executor.checked) and not executor.evaluated
    [found] = stark("check", "problem.py", "good.py", "--json").document["candidates"]
    assert "latency_ms" not in found and "correct" == found["status"]


def test_kept_evaluations_are_attempts_of_one_run(stark: Stark) -> None:
    evaluate = ("evaluate", "problem.py", "--effort", "search", "--keep")
    stark(*evaluate, "broken.py", "--idea", "Fuse both loops.")
    stark(*evaluate, "good.py", "--parent", "1")
    document = stark(*evaluate, "better.py", "--parent", "2", "--json").document
    again = stark(*evaluate, "good.py")

    [kept] = document["candidates"]
    assert 3 == kept["attempt"]
    assert f"good.py: attempt 2 of run {kept['run']}, which has this source already" in again.out
    [run] = api.runs()
    result = api.load_run(run.id)
    assert [(ROOT, "improve"), (1, "debug"), (2, "improve")] == [
        (node.parent, node.action) for node in result.tree.nodes
    ]
    assert "Fuse both loops" == result.tree.node(1).plan.name
    assert 3 == result.kernel.attempt and not result.kernel.confirmed


def test_a_thorough_evaluation_is_the_final_check(stark: Stark) -> None:
    stark("evaluate", "problem.py", "better.py", "--effort", "search", "--keep")
    stark("evaluate", "problem.py", "better.py", "good.py", "broken.py", "--keep")

    result = api.load_run()
    assert {1, 2} == set(result.promotions)
    assert 1 == result.kernel.attempt and result.kernel.confirmed


def test_a_final_check_counts_once_unless_it_was_too_noisy(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [noisy(0.2), correct(0.5), correct(0.1)]

    async def evaluate(*_: object) -> Evaluation:
        return found.pop(0).model_copy(update={"effort": "promote"})

    monkeypatch.setattr(FakeExecutor, "evaluate", evaluate)
    ratios = []
    for _ in range(3):
        stark("evaluate", "problem.py", "good.py", "--keep")
        ratios.append(round(api.load_run().kernel.speedup.ratio, 1))

    assert [5.0, 2.0, 2.0] == ratios


def test_a_noisy_search_evaluation_is_replaced_by_the_next(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [noisy(0.2), correct(0.5), correct(0.1)]

    async def evaluate(*_: object) -> Evaluation:
        return found.pop(0)

    monkeypatch.setattr(FakeExecutor, "evaluate", evaluate)
    ratios = []
    for _ in range(3):
        ended = stark("evaluate", "problem.py", "good.py", "--effort", "search", "--keep")
        ratios.append(round(api.load_run().tree.node(1).speedup_vs_eager or 0, 1))

    assert [5.0, 2.0, 2.0] == ratios
    assert "its earlier evaluation counts" in ended.out


def test_what_is_dropped_of_a_known_source_is_said(stark: Stark) -> None:
    evaluate = ("evaluate", "problem.py", "--effort", "search", "--keep")
    stark(*evaluate, "good.py")
    stark(*evaluate, "better.py")
    ended = stark(*evaluate, "good.py", "--parent", "2", "--idea", "Fuse.")

    assert "--idea and --parent are ignored, since it keeps its own" in ended.out
    assert "ignored" not in stark(*evaluate, "good.py").out
    assert ROOT == api.load_run().tree.node(1).parent


def test_another_number_of_cores_is_another_run(
    stark: Stark, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = ("evaluate", "problem.py", "--effort", "search", "--keep")
    stark(*evaluate, "good.py")
    cpu = executor._device.model_copy(update={"kind": "cpu", "processors": 1})
    monkeypatch.setattr(executor, "_device", cpu)
    refused = stark(*evaluate, "better.py", "--parent", "1")
    stark(*evaluate, "better.py")
    stark(*evaluate, "good.py")

    assert 2 == refused.code and "on this kind of machine" in refused.err
    assert [2, 1] == [run.attempts for run in api.runs()]


def test_a_kept_evaluation_uses_the_runs_roofline_and_says_so(
    stark: Stark, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = ("evaluate", "problem.py", "--effort", "search", "--keep")
    first = stark(*evaluate, "good.py")
    describe = FakeExecutor.describe

    async def later(self: FakeExecutor, problem: Problem) -> Reference:
        found = await describe(self, problem)
        halved = {
            "memory_ms": found.roofline.memory_ms / 2,
            "compute_ms": found.roofline.compute_ms / 2,
        }
        return found.model_copy(update={"roofline": found.roofline.model_copy(update=halved)})

    monkeypatch.setattr(FakeExecutor, "describe", later)
    document = stark(*evaluate, "better.py", "--json").document["candidates"][0]
    again = stark(*evaluate, "good.py")
    shown = stark("show", document["run"], "2", "--json").document

    assert "roofline: the run's estimate" not in first.out
    assert "roofline: the run's estimate" in again.out
    assert shown["roofline_fraction"] == document["roofline_fraction"]


def test_the_languages_of_an_agents_candidates_are_not_claimed(stark: Stark) -> None:
    stark("evaluate", "problem.py", "good.py", "--effort", "search", "--keep")
    [line] = [line for line in stark("runs").out.splitlines() if " agent " in line]

    assert "cpp" not in line and "pytorch" not in line


def test_an_evaluation_says_whether_it_is_the_final_check(stark: Stark) -> None:
    search = stark("evaluate", "problem.py", "good.py", "--effort", "search")

    assert "the final check, without --effort search, takes 10 to 30 s" in search.out
    final = stark("evaluate", "problem.py", "good.py").out
    assert "final check, 10 to 30 s per file on a quiet machine" in final
    assert re.search(r"this command took \d+ s", final)


def test_a_search_continues_from_an_agents_attempts(stark: Stark) -> None:
    stark("evaluate", "problem.py", "good.py", "--effort", "search", "--keep")
    ended = stark("resume", "last", "--model", "exec[scripted]:sh model.sh", "--attempts", "4")

    assert 0 == ended.code, ended.err
    nodes = api.load_run().tree.nodes
    assert "agent" == nodes[0].role
    assert 4 == len(nodes) and {"agent", "code", "debug"} >= {node.role for node in nodes}
    assert any(node.parent == 1 for node in nodes)
    stark("evaluate", "problem.py", "broken.py", "--effort", "search", "--keep", "--parent", "4")
    assert 1 == len(api.runs())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--idea", "Fuse."), "add --keep"),
        (("--keep", "--parent", "7"), "there is no attempt 7"),
    ],
)
def test_wrong_use_is_refused_before_the_work(
    stark: Stark, executor: FakeExecutor, options: tuple[str, ...], said: str
) -> None:
    ended = stark("evaluate", "problem.py", "good.py", *options)

    assert 2 == ended.code and said in ended.err
    assert not executor.promoted
    assert [] == api.runs()
