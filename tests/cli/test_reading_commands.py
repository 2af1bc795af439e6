from __future__ import annotations

import pytest
from cli_samples import BETTER, OPTIMIZE, Stark, candidate_source

from stark.testing.executor import FakeExecutor


@pytest.fixture(autouse=True)
def a_run(stark: Stark, executor: FakeExecutor) -> None:
    """Its first attempt fails, its second repairs it and its third is the best."""
    stark(*OPTIMIZE, "--attempts", "3")


def test_runs_lists_it(stark: Stark) -> None:
    ended = stark("runs")

    assert 0 == ended.code
    assert "3/3" in ended.out and "4.00x" in ended.out and "3 attempts made" in ended.out


def test_runs_as_json(stark: Stark) -> None:
    (summary,) = stark("runs", "--json").document

    assert (3, 2, "team-only") == (summary["attempts"], summary["correct"], summary["strategy"])


def test_runs_and_show_tell_estimated_tokens_by_role_and_mark_them(stark: Stark) -> None:
    (listed,) = stark("runs", "--json").document
    shown = stark("show", "last", "--json").document

    assert ["plan", "code", "debug"] == [role["role"] for role in listed["roles"]]
    assert listed["roles"] == shown["roles"]
    assert {0} == {role["input"]["told"] for role in listed["roles"]}
    sums = [sum(role[way]["estimated"] for role in listed["roles"]) for way in ("input", "output")]
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


def test_show_one_attempt_in_full(stark: Stark) -> None:
    ended = stark("show", "last", "3")

    assert "improve attempt 2" in ended.out
    assert "Fuse everything into one pass over memory." in ended.out
    assert "-# good" in ended.out and "+# better" in ended.out
    assert "compile" in ended.out and "KernelBench's allclose holds" in ended.out
    assert ["plan", "code", "all"] == [
        row[0] for line in ended.out.splitlines() if "unknown" in (row := line.split())
    ]


def test_show_source_is_the_best_candidates(stark: Stark) -> None:
    assert candidate_source(BETTER) == stark("show", "--source").out


def test_show_attempt_as_json_holds_its_calls(stark: Stark) -> None:
    document = stark("show", "last", "3", "--json").document

    assert ["plan", "code"] == [call["role"] for call in document["calls"]]
    assert pytest.approx(0.25) == document["latency_ms"]


def test_show_reads_a_recording(stark: Stark) -> None:
    stored = stark("show").out.splitlines()
    stark("record", "last", "out/run.json")

    read = stark("show", "out/run.json").out.splitlines()

    # A recording keeps the model's name, and not the command behind it.
    named = [line for line in stored if line.startswith("models")]
    assert ["models     exec[scripted]:sh model.sh (plan, code, debug)"] == [
        *map(str.rstrip, named)
    ]
    assert [line for line in stored if line not in named] == [
        line for line in read if not line.startswith("models")
    ]
    assert "models     exec[scripted] (plan, code, debug)" in [*map(str.rstrip, read)]


def test_an_attempt_that_is_not_there(stark: Stark) -> None:
    ended = stark("show", "last", "9")

    assert (2, True) == (ended.code, "has no finished attempt 9; it has 1 to 3" in ended.err)
