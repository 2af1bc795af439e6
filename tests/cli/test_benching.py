from __future__ import annotations

import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from cli_samples import Stark
from stark.cli.benching import numbers, report_folder

from stark.cli.interrupt import Interrupted
from stark.core.errors import ProblemError, UsageError
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.languages import language
from stark.testing.executor import FakeExecutor

MODEL = """#!/bin/sh
# Plans, and answers every other question with the same candidate under a mark of its own.
question=$(cat)
case "$question" in
  *"Your role: plan"*) printf 'ACTION: rewrite\\nSTRATEGY:\\nFuse everything into one pass.\\n'; exit ;;
esac
printf '```python\\n'
cat candidate.py
printf '\\n# %s\\n```\\n' "$(printf '%s' "$question" | cksum)"
"""


@pytest.fixture
def bench(workplace: Path, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command for two problems, two strategies and four attempts each, of about a second."""
    monkeypatch.setattr("stark.cli.benching.open_executor", lambda *_: executor)
    example = language("cpp").example
    folder = workplace / "small"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(f"{example.problem.source}# {name}\n")
    (workplace / "candidate.py").write_text(example.candidate.source)
    (workplace / "answer.sh").write_text(MODEL)
    return [
        *("bench", "folder", "small", "--strategy", "team-only,sampling", "--attempts", "4"),
        *("--model", "exec[scripted]:sh answer.sh", "--language", "cpp"),
    ]


def test_a_bench_is_worked_on_reported_and_listed(stark: Stark, bench: list[str]) -> None:
    ended = stark(*bench)

    assert 0 == ended.code, ended.err
    name = re.search(r"bench (small-\w{4}): 2 problems x team-only, sampling x 1 seed", ended.out)
    assert name is not None
    for title in ("Kernels", "Speedups", "Search and cost", "fast_p", "Differences"):
        assert f"\n{title}\n" in ended.out
    assert "[4/4]" in ended.out
    assert "not measured" in ended.out
    folder = Path(".stark/bench") / name[1]
    assert f"report: {folder / 'report.md'}" in ended.out
    assert {"report.md", "report.json", "summary.csv", "runs.csv"} <= {
        file.name for file in folder.iterdir()
    }
    assert f"{name[1]}: 2 problems" in stark("bench", "list").out
    assert "4 of 4 runs have ended" in stark("bench", "list").out


def test_the_report_is_made_again_from_the_store_alone(
    stark: Stark, bench: list[str], workplace: Path
) -> None:
    first = stark(*bench, "--json").document
    for file in (workplace / "small").iterdir():
        file.unlink()

    again = stark("bench", "report", "--json", "--output", "elsewhere").document

    assert first | {"folder": "elsewhere"} == again
    assert (workplace / "elsewhere" / "report.md").is_file()


def test_the_same_command_goes_on_and_asks_nothing_twice(
    stark: Stark, bench: list[str], executor: FakeExecutor
) -> None:
    stopped = stark(*bench, "--total-attempts", "5", "--json")
    made = len(executor.evaluated)

    assert 1 == stopped.code
    assert "ended: 5 attempts made by the whole bench; " in stopped.err
    assert re.search(r"`stark bench resume small-\w{4}` goes on", stopped.err)
    assert 5 <= made < 16

    finished = stark(*bench, "--json")

    assert 0 == finished.code, finished.err
    assert 16 == len(executor.evaluated)
    assert [4] * 4 == [run["attempts"] for run in finished.document["runs"]]
    assert 0 == stark(*bench).code
    assert 16 == len(executor.evaluated)


def test_resume_needs_the_name_alone(
    stark: Stark, bench: list[str], executor: FakeExecutor, workplace: Path
) -> None:
    stark(*bench, "--total-attempts", "5", "--name", "mine")
    (workplace / "small" / "one.py").unlink()

    still = stark("bench", "resume", "mi")
    ended = stark("bench", "resume", "mine", "--total-attempts", "99", "--json")

    assert (1, 0) == (still.code, ended.code)
    assert 16 == len(executor.evaluated)
    assert "mine" == ended.document["bench"]["name"]
    assert [] == ended.document["bench"].get("cells", [])


def test_a_refused_problem_is_named_and_its_runs_have_ended(
    stark: Stark, bench: list[str], executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = executor.describe

    async def describe(problem: Problem) -> Reference:
        if problem.name == "two":
            raise ProblemError("two: line 3: forward raised")
        return await measure(problem)

    monkeypatch.setattr(executor, "describe", describe)

    ended, again = stark(*bench, "--name", "mine"), stark("bench", "resume", "mine")

    assert "two: the problem cannot be used: two: line 3: forward raised" in ended.out
    said = (
        "refused: two, for the reasons that the report notes; where the machine is mended `stark bench resume mine` goes on "
        "and tries them again, and with a mended file begin another bench"
    )
    for each in (ended, again):
        assert (1, True) == (each.code, said in each.err), each.err
        assert "out of reach" not in each.err and "unfinished" not in each.err
    assert 8 == len(executor.evaluated)
    assert "4 of 4 runs have ended" in stark("bench", "list").out


def test_a_model_for_a_role_that_no_strategy_of_it_has_is_refused(
    stark: Stark, bench: list[str], executor: FakeExecutor
) -> None:
    refused = stark(*bench, "--strategy", "sampling,reflexion", "--plan-model", "exec:sh answer.sh")

    assert 2 == refused.code
    assert "the strategies sampling, reflexion have no plan role" in refused.err
    assert 0 == stark(*bench, "--plan-model", "exec:sh answer.sh").code, "team-only has it"


def test_its_runs_are_shown_like_any_other(stark: Stark, bench: list[str]) -> None:
    runs = stark(*bench, "--json").document["runs"]

    shown = stark("show", runs[0]["run_id"])

    assert 0 == shown.code
    assert "strategy   team-only, in cpp, seed 1" in shown.out


def test_an_interruption_says_how_to_go_on(
    stark: Stark, bench: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(work: Coroutine[Any, Any, object]) -> None:
        work.close()
        raise Interrupted("interrupted")

    monkeypatch.setattr("stark.cli.benching.run_interruptibly", interrupted)

    ended = stark(*bench, "--name", "mine", "--store", "sqlite:///elsewhere.db")

    assert 130 == ended.code
    assert "`stark bench resume mine --store sqlite:///elsewhere.db` goes on" in ended.err


def test_a_request_that_the_judge_refuses_is_not_to_be_resumed(
    stark: Stark, bench: list[str]
) -> None:
    ended = stark(*bench, "--language", "triton")

    assert 2 == ended.code
    assert "triton kernels do not run on the judge's Invented CPU" in ended.err
    assert "resume" not in ended.err


def test_what_no_compiler_writes_is_refused_before_the_bench_is_stored(
    stark: Stark, bench: list[str]
) -> None:
    ended = stark(*bench, "--language", "cuda", "--start", "compiler")

    assert (2, True) == (ended.code, "torch.compile writes no cuda kernels" in ended.err)
    assert "There are no benches yet" in stark("bench", "list").out


def test_a_model_that_refuses_has_to_be_mended_before_the_bench_goes_on(
    stark: Stark, bench: list[str]
) -> None:
    ended = stark(*bench, "--model", "exec:exit 3")

    assert 2 == ended.code
    assert "` goes on, once that is mended" in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("folder", "nowhere", "--model", "exec:x"), "There is no file nowhere"),
        (("folder", "small", "--strategy", "starc", "--model", "exec:x"), "no strategy 'starc'"),
        (("folder", "small"), "no model is given"),
        (
            ("folder", "small", "--model", "exec:x", "--total-dollars", "0"),
            "--total-dollars should",
        ),
        (("kernelbench", "--model", "exec:x"), "give a checkout with"),
        (("folder", "small", "--model", "exec:x", "--output", "/proc/x"), "written to /proc/x"),
        (("resume", "--output", "/proc/x"), "nothing can be written to /proc/x"),
        (("folder", "small", "--model", "exec:x", "--name", "../x/y"), "cannot name a bench"),
        (("folder", "small", "--model", "exec:x", "--store", "sqlite://"), "name a file, such as"),
        (("kernelbench", "--level", "one"), "--level is 'one'; write numbers and spans"),
        (("resume",), "there are no benches yet"),
        (("report", "mine"), "there are no benches yet"),
    ],
)
def test_what_cannot_be_is_refused(
    stark: Stark, bench: list[str], arguments: tuple[str, ...], said: str
) -> None:
    ended = stark("bench", *arguments)

    assert (2, True) == (ended.code, said in ended.err), ended.err


@pytest.mark.parametrize(
    ("written", "meant"),
    [("7", [7]), ("1,5-8", [1, 5, 6, 7, 8]), (" 3 - 4 , 1,3", [3, 4, 1])],
)
def test_numbers_and_spans(written: str, meant: list[int]) -> None:
    assert meant == numbers(written, "--problems")


@pytest.mark.parametrize("written", ["", "1,", "a", "5-1", "1-2-3", "-3"])
def test_what_is_no_number_or_span(written: str) -> None:
    with pytest.raises(UsageError, match="--problems is"):
        numbers(written, "--problems")


def test_reports_lie_beside_the_store() -> None:
    assert Path(".stark/bench/mine") == report_folder("sqlite:///.stark/stark.db", "mine")
    assert Path("/data/bench/mine") == report_folder("sqlite:////data/runs.db", "mine")
