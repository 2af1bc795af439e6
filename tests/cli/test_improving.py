from __future__ import annotations

from pathlib import Path
from typing import Any

from cli_samples import COMPARISON, OPTIMIZE, Stark

from support.executor import FakeExecutor

OPTIONS = [*OPTIMIZE[2:], "--attempts", "3"]
COMMAND = ["hotspots", "users:Model", "--inputs", "users:example", "--optimize", "2", *OPTIONS]


def test_the_best_regions_are_searched_and_the_winners_put_back(
    stark: Stark, executor: FakeExecutor, asked: list[Any], workplace: Path
) -> None:
    ended = stark(*COMMAND)

    kernels = [str(path) for path in Path(".stark/kernels").glob("*.py")]
    [(_, found_with), (work, compared_with)] = asked
    assert 0 == ended.code, ended.err
    assert ["--compile", "10", "--capture", "2", "--folder", ".stark/problems"] == found_with
    assert ("compare", sorted(kernels)) == (work, sorted(compared_with))
    assert 2 == len(kernels)
    assert "Hooked (hooked): not searched: hooked has a hook; remove it" in ended.out
    assert (
        "whole model: 12.0 ms before, 8.00 ms after, 1.50x vs the model as it was [1.45, 1.55]"
        in ended.out
    )
    assert COMPARISON.reports[0] in ended.out


def test_one_document_has_everything(
    stark: Stark, executor: FakeExecutor, asked: list[Any]
) -> None:
    document = stark(*COMMAND, "--json").document

    assert 1.5 == document["comparison"]["speedup"]["ratio"]
    assert [True, False, True] == [bool(each["kernel"]) for each in document["regions"]]
    assert 3 == document["regions"][0]["run"]["best"]
    assert "users:Model" == document["hotspots"]["model"]


def test_without_a_kernel_nothing_is_compared(
    stark: Stark, executor: FakeExecutor, asked: list[Any], workplace: Path
) -> None:
    (workplace / "reply-2.md").write_text((workplace / "reply-1.md").read_text())  # also broken
    ended = stark(*COMMAND[:-1], "1")

    assert 1 == ended.code
    assert ["find"] == [work for work, _ in asked]
    assert "Mlp (mlp): no kernel passed the final check (run problem-" in ended.out
    assert "No kernel was put back" in ended.out


def test_options_are_refused_before_the_model_runs(
    stark: Stark, executor: FakeExecutor, asked: list[Any]
) -> None:
    ended = stark(*COMMAND[:6])

    assert 2 == ended.code
    assert [] == asked
