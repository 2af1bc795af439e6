from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_samples import BETTER, GOOD, OPTIMIZE, Stark, candidate_source

from stark.core.candidate import Candidate
from stark.core.evaluation import Effort, Evaluation
from stark.core.problem import Problem
from support.executor import FakeExecutor
from support.nodes import correct, failure


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder in which the run was made."""
    return tmp_path_factory.mktemp("made") / "workplace"


@pytest.fixture(autouse=True)
def a_run(stark: Stark, executor: FakeExecutor, workplace: Path, made: Path) -> None:
    """Its first attempt fails, its second repairs it and its third is the best. Made once, and copied."""
    if made.exists():
        shutil.copytree(made, workplace, dirs_exist_ok=True)
        return
    stark(*OPTIMIZE, "--attempts", "3")
    shutil.copytree(workplace, made)


def test_runs_lists_it(stark: Stark) -> None:
    ended = stark("runs")

    assert 0 == ended.code
    assert "3/3" in ended.out and "4.00x" in ended.out and "3 attempts made" in ended.out


def test_runs_as_json(stark: Stark) -> None:
    (summary,) = stark("runs", "--json").document["runs"]

    assert (3, 2, "stark:latest") == (summary["attempts"], summary["correct"], summary["strategy"])


def test_runs_and_show_mark_estimated_tokens_and_add_them_up_by_role(stark: Stark) -> None:
    (listed,) = stark("runs", "--json").document["runs"]
    shown = stark("show", "last", "--json").document

    assert ["plan", "code", "debug"] == list(listed["roles"])
    assert listed["roles"] == shown["roles"]
    roles = listed["roles"].values()
    assert all(role["estimated_calls"] == role["calls"] for role in roles)
    sums = [sum(role[way] for role in roles) for way in ("input_tokens", "output_tokens")]
    assert all(sums)
    drawn = stark("show").out
    assert all(f"~{total:,}" in drawn for total in sums)
    assert "~ is an estimate" in drawn
    assert f"~{sum(sums) / 1000:.0f}k" in stark("runs").out


def test_show_draws_the_tree(stark: Stark) -> None:
    ended = stark("show")

    lines = [line.split() for line in ended.out.splitlines()]
    assert ["└─", "1", "code", "incorrect"] == next(words for words in lines if "1" in words[1:2])[
        :4
    ]
    assert any(words[:3] == ["└─", "2", "debug"] for words in lines)
    assert any(words[:5] == ["└─", "3", "code", "★", "best"] for words in lines)
    assert "Invented CPU" in ended.out


@pytest.mark.slow
def test_show_one_attempt_in_full(stark: Stark) -> None:
    ended = stark("show", "last", "3")

    assert "changes to attempt 2" in ended.out
    assert "Fuse everything into one pass over memory." in ended.out
    assert "-# good" in ended.out and "+# better" in ended.out
    assert "compile" in ended.out and "KernelBench's allclose passes" in " ".join(ended.out.split())
    assert ["plan", "code", "all"] == [
        row[0] for line in ended.out.splitlines() if "unknown" in (row := line.split())
    ]


def test_a_number_alone_is_an_attempt_of_the_last_run(stark: Stark) -> None:
    assert stark("show", "last", "2").out == stark("show", "2").out
    assert stark("show", "2", "--source").out == candidate_source(GOOD)


def test_prompts_are_printed_with_their_replies(stark: Stark) -> None:
    printed, calls = (
        stark("show", "3", "--prompt").out,
        stark("show", "3", "--json").document["calls"],
    )

    assert ["plan", "code"] == [call["role"] for call in calls]
    for call in calls:
        for text in (*(message["text"] for message in call["messages"]), call["reply"]["text"]):
            assert text in printed
    assert printed.index("plan, question 1: system") < printed.index("plan, reply of scripted")
    refused = stark("show", "--prompt")
    assert (2, True) == (refused.code, "name the attempt whose prompts" in refused.err)


@pytest.mark.parametrize("command", ["runs", "bench list", "show last", "resume last"])
def test_reading_leaves_nothing_in_an_empty_folder(
    stark: Stark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)

    ended = stark(*command.split())

    assert "no runs yet" in ended.out + ended.err or "no benches yet" in ended.out
    assert [] == list(empty.iterdir())


def test_show_source_is_the_best_candidates(stark: Stark) -> None:
    assert candidate_source(BETTER) == stark("show", "--source").out


def test_what_won_the_final_check_is_starred_and_printed(
    stark: Stark, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = executor.evaluate

    async def evaluate(
        problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        if effort == "promote" and BETTER in candidate.source:
            return failure("incorrect")
        return await judge(problem, candidate, effort)

    monkeypatch.setattr(executor, "evaluate", evaluate)
    Path("count").unlink()
    ended = stark(*OPTIMIZE, "--attempts", "3", "--output", "kernel.py")
    (starred,) = (line.split() for line in stark("show").out.splitlines() if "★ best" in line)

    assert 0 == ended.code
    assert "2" in starred[:4]
    assert candidate_source(GOOD) == stark("show", "--source").out
    assert "# good" in Path("kernel.py").read_text()
    assert 2 == stark("show", "--json").document["best"]


def test_without_a_winner_there_is_no_source(
    stark: Stark, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def evaluate(*asked: object) -> Evaluation:
        return failure("incorrect") if "promote" in asked else correct(0.25)

    monkeypatch.setattr(executor, "evaluate", evaluate)
    stark(*OPTIMIZE, "--attempts", "1")
    ended = stark("show", "--source")

    assert "★" not in stark("show").out
    assert (2, True) == (ended.code, "has no kernel that passed the final check" in ended.err)


def test_show_attempt_as_json_holds_its_calls(stark: Stark) -> None:
    document = stark("show", "last", "3", "--json").document

    assert ["plan", "code"] == [call["role"] for call in document["calls"]]
    assert pytest.approx(0.25) == document["latency_ms"]


def test_show_reads_a_recording(stark: Stark) -> None:
    stored = stark("show").out.splitlines()
    stark("record", "last", "out/run.json")

    read = stark("show", "out/run.json").out.splitlines()

    # A recording keeps the model's name and not the command behind it, and does not say why the run ended.
    assert "ended: 3 attempts made" == stored.pop().rstrip()
    named = [line for line in stored if line.startswith("models")]
    assert ["models     exec[scripted]:sh model.sh (plan, code, debug)"] == [
        *map(str.rstrip, named)
    ]
    assert [line for line in stored if line not in named] == [
        line for line in read if not line.startswith("models")
    ]
    assert "models     exec[scripted] (plan, code, debug)" in [*map(str.rstrip, read)]


def test_a_recording_that_is_missing_or_none(stark: Stark) -> None:
    Path("broken.json").write_text("{")
    Path("other.json").write_text("{}")

    said = {name: stark("show", name).err for name in ("nope.json", "broken.json", "other.json")}

    assert "the recording nope.json cannot be read: No such file or directory" in said["nope.json"]
    assert "broken.json is no recording, since it is not JSON; make" in said["broken.json"]
    assert (
        "other.json is no recording of this version of STARK; make one with" in said["other.json"]
    )


def test_an_attempt_that_is_not_there(stark: Stark) -> None:
    ended = stark("show", "last", "9")

    assert (2, True) == (ended.code, "has no finished attempt 9; it has 1 to 3" in ended.err)
