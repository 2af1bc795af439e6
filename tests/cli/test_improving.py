from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_samples import OPTIMIZE, Stark

from stark.core.measurement import Speedup
from stark.regions.results import Answer, Captured, Comparison, Hotspots
from support.executor import FakeExecutor
from support.regions import region

OPTIONS = [*OPTIMIZE[2:], "--attempts", "3"]
COMMAND = ["hotspots", "users:Model", "--inputs", "users:example", "--optimize", "2", *OPTIONS]


FOUND = Hotspots(
    model="users:Model",
    device="a CPU",
    run_ms=12,
    runs=10,
    module_calls=4,
    watching_us=1,
    bandwidth_gb_s=10,
    peak_tflop_s={"fp32": 0.1},
    regions=(region("mlp", 4), region("hooked", 2), region("norm", 1)),
)
COMPARISON = Comparison(
    before_ms=12,
    after_ms=8,
    speedup=Speedup(reference="the model as it was", ratio=1.5, low=1.45, high=1.55),
    reports=("users:Mlp: 1 module, 2 calls by the kernel",),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, workplace: Path) -> list[tuple[str, list[str]]]:
    """What the process with the model is asked; it answers that two regions are captured and one is refused."""
    found: list[tuple[str, list[str]]] = []
    source = (workplace / "problem.py").read_text()
    (workplace / "norm.py").write_text(f"{source}\n# another problem\n")

    def answer(work: str, module: str, inputs: str, more: list[str]) -> Answer:
        assert ("users:Model", "users:example") == (module, inputs)
        found.append((work, more))
        if work == "compare":
            return Answer(comparison=COMPARISON)
        captured = (
            Captured(region=FOUND.regions[0], file="problem.py"),
            Captured(region=FOUND.regions[1], refused="hooked has a hook; remove it"),
            Captured(region=FOUND.regions[2], file="norm.py"),
        )
        return Answer(hotspots=FOUND, captured=captured)

    monkeypatch.setattr("stark.cli.improving.asked_model", answer)
    return found


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
