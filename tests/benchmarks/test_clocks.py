from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from clocks import alike, methods, pictures, tables
from clocks.chances import binomial_interval, spread
from clocks.findings import Alike, Compared, Findings, read
from clocks.other_methods import mean_of_100, programs
from clocks.pictures import around_one, decades
from clocks.programs import Size, sizes
from measuring import command

from stark.core.errors import MachineError
from stark.core.evaluation import Correct, Incorrect
from stark.languages import language
from support.executor import FakeExecutor
from support.nodes import correct, measurement

LATE = 1e12


def row(size: str = "22", latency_ms: float = 0.5, **values: float) -> Alike:
    wanted = {
        "ratio": 1.0,
        "low": 0.99,
        "high": 1.01,
        "exact_low": 0.995,
        "exact_high": 1.005,
        "rounds": 20,
        "device_s": 1.5,
    } | values
    return Alike(size=size, effort="search", latency_ms=latency_ms, **wanted)  # type: ignore[arg-type]


def run(method: str, ratio: float, busy: bool = False, won: bool | None = None) -> Compared:
    return Compared(method, "20", busy, 2.0 * ratio, 2.0, ratio, won)


def findings_of(path: Path, *rows: Alike | Compared) -> Findings:
    return Findings(
        path=path / "box.json",
        machine="a box",
        command="python measuring.py",
        date="2026-11-20",
        alike=[each for each in rows if isinstance(each, Alike)],
        compared=[each for each in rows if isinstance(each, Compared)],
    )


def alike_as(ratio: float, resolution_ms: float = 0.0) -> Correct:
    candidate = measurement(1.0).model_copy(update={"resolution_ms": resolution_ms})
    return correct(1.0).model_copy(
        update={
            "candidate": candidate,
            "references": {"eager": measurement(ratio)},
            "seconds": {"time": 1.25, "verify": 3.0},
        }
    )


def test_the_interval_of_a_share() -> None:
    low, high = binomial_interval(0, 368)
    assert low == 0.0
    assert high == pytest.approx(1 - 0.025 ** (1 / 368))
    assert binomial_interval(5, 10) == pytest.approx((0.1871, 0.8129), abs=1e-4)
    assert binomial_interval(10, 10) == pytest.approx((0.6915, 1.0), abs=1e-4)


def test_the_spread_is_the_whole_range() -> None:
    assert spread([1.9, 2.0, 2.2]) == pytest.approx(0.15)


def test_sizes_are_read_and_written() -> None:
    assert [Size(14), Size(28, 8), Size(20, joins=True)] == sizes("14,28x8,cat20")
    assert ["14", "28x8", "cat20"] == [str(size) for size in sizes("14,28x8,cat20")]
    assert Size(28, 8).words == "2^28, 8 times"
    assert Size(20, joins=True).words == "2 x 2^20, joined"
    with pytest.raises(ValueError, match="invalid literal"):
        sizes("big")


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_the_candidate_is_the_program_itself(device: str) -> None:
    candidate = Size(4, 3).candidate(device)
    assert language(candidate.language).check(candidate.source) is None
    assert candidate.source.startswith(
        Size(4, 3).problem.source.replace("class Model(", "class ModelNew(")
    )


def test_the_program_goes_over_its_elements_as_often_as_it_should() -> None:
    import torch

    first, second = programs(Size(4, 3).problem.source, torch.device("cpu"))
    assert torch.equal(first(), second())
    calls = 0

    def counted() -> None:
        nonlocal calls
        calls += 1

    assert mean_of_100(counted) >= 0.0
    assert calls == 103


def test_a_window_as_a_row() -> None:
    found = alike.alike("22", "promote", alike_as(1.1, resolution_ms=0.2))
    assert found.ratio == pytest.approx(1.1)
    assert found.exact_low == pytest.approx(1.1)
    assert found.low == pytest.approx(1.1 / 1.2)
    assert found.device_s == 1.25
    assert found.effort == "promote"
    assert alike.compared("22", True, alike_as(1.1)).won is True
    assert alike.compared("22", True, alike_as(1.1, resolution_ms=0.2)).won is False


async def test_a_size_that_fails_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    def judge(candidate):  # type: ignore[no-untyped-def]
        small = "1024" in candidate.source
        return Incorrect(error="not here") if small else alike_as(1.0)

    findings = findings_of(tmp_path)
    executor = FakeExecutor(judge)
    await alike.measure(executor, "cpu", sizes("10,14"), 3, "search", LATE, findings)
    assert ["14"] * 3 == [each.size for each in findings.alike]
    assert ["2^10: incorrect: not here"] == findings.failures
    assert findings == read(findings.path)


async def test_nothing_is_begun_when_the_time_is_up(tmp_path: Path) -> None:
    findings = findings_of(tmp_path)
    executor = FakeExecutor(lambda _: alike_as(1.0))
    await alike.measure(executor, "cpu", sizes("10"), 3, "search", 0.0, findings)
    assert [] == findings.alike


def test_the_table_of_identical_programs(tmp_path: Path) -> None:
    won = row(ratio=1.03, low=1.01, high=1.05, exact_low=1.02, exact_high=1.04, device_s=2.5)
    findings = findings_of(tmp_path, row("28x8", 4.0), won, row(), row(ratio=0.98, high=0.99))
    said = tables.identical(findings)
    assert "a box, 2026-11-20: `python measuring.py`" in said
    assert "| search | 2^22 | 0.5 | 3 | 0.9800 to 1.0300 | 1.00% | 0.51% | 1.50 | 1 | 1 |" in said
    unmeasurable = tables.identical(findings_of(tmp_path, row(low=0.001, high=1000.0)))
    assert "| not measurable | 0.50% |" in unmeasurable
    assert said.index("| 2^22 |") < said.index("| 2^28, 8 times |")
    assert "- false wins: 1 of 4, 25.00% (95 % interval 0.63% to 80.59%)" in said
    assert "not widened, had to be above 1.0200" in said
    assert "in 1 of 4 windows, 1.00% in the median" in said
    assert "![ratios](measuring/box-ratios.svg)" in said


def test_the_table_of_methods(tmp_path: Path) -> None:
    runs = [run("mean", 1.02), run("mean", 0.9), run("mean", 3.0, busy=True)]
    findings = findings_of(tmp_path, *runs, run("judge", 1.01, won=False))
    said = tables.methods(findings)
    assert (
        "| 2^20 | mean | 2 and 1 | 2 | 0.0% | 0.9000 | claims none | 2 | 0.0% | 3.0000 | claims none |"
        in said
    )
    assert "| 2^20 | judge | 1 and 0 | 2 | 0.0% | 1.0100 | 0 |  |  |  |  |" in said


def test_text_goes_between_its_marks() -> None:
    document = "a\n<!-- measured: cpu x -->\nold\n<!-- end: cpu x -->\nb\n"
    once = tables.placed(document, "cpu x", "n\\1w")
    assert once == "a\n<!-- measured: cpu x -->\nn\\1w\n<!-- end: cpu x -->\nb\n"
    assert once == tables.placed(once, "cpu x", "n\\1w")
    with pytest.raises(ValueError, match="measured: gpu"):
        tables.placed(document, "gpu", "new")


def test_the_document_has_marks_for_every_machine() -> None:
    document = (Path(__file__).parents[2] / "docs" / "notes" / "measuring.md").read_text()
    for name in (
        "epyc identical",
        "epyc methods",
        "h200 identical",
        "h200 methods",
    ):
        assert tables.placed(document, name, "new") != document


def test_pictures_hold_every_row(tmp_path: Path) -> None:
    runs = [run("mean", 1.02), run("mean", 60.0, busy=True), run("judge", 1.0)]
    findings = findings_of(tmp_path, row("10", 0.004), row("28x8", 4.0, low=1.001), *runs)
    drawn = pictures.pictures(findings)
    assert {"box-ratios.svg", "box-widths.svg", "box-methods.svg"} == set(drawn)
    dots = {name: picture.count("<circle") for name, picture in drawn.items()}
    assert {"box-ratios.svg": 2, "box-widths.svg": 0, "box-methods.svg": 3} == dots
    for picture in drawn.values():
        ElementTree.fromstring(picture)
    assert {} == pictures.pictures(findings_of(tmp_path))


def test_axes_hold_what_they_show() -> None:
    latency = decades("ms", [0.004, 30.0])
    assert (0.001, 100.0) == pytest.approx((latency.low, latency.high))
    close = around_one("ratio", [0.98, 1.01])
    assert close.low < 0.98 < 1.02 < close.high
    assert not close.logarithmic
    assert around_one("ratio", [0.1, 1.0]).logarithmic


def test_rows_are_written_as_tables(tmp_path: Path) -> None:
    findings = findings_of(tmp_path, row(), run("mean", 1.0))
    findings.write_csv()
    lines = (tmp_path / "box-identical.csv").read_text().splitlines()
    assert lines[0].startswith("size,effort,latency_ms,ratio,low,high")
    assert lines[1].startswith("22,search,0.5,1.0,0.99,1.01")
    assert len((tmp_path / "box-methods.csv").read_text().splitlines()) == 2


def test_one_run_of_the_other_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
import json, sys
asked = json.loads(sys.argv[1])
assert asked["device"] == "cpu" and "relu" in asked["programs"]["14"] and asked["kernelbench"] is None
print("[Profiling] something")
print(json.dumps({"method": "mean", "size": "14", "reference_ms": 3.0, "candidate_ms": 2.0}))
print(json.dumps({"method": "median", "size": "14", "failed": "no such method"}))
sys.exit("too bad")
"""
    (tmp_path / "other_methods.py").write_text(script)
    monkeypatch.setattr(methods, "HERE", tmp_path)
    findings = findings_of(tmp_path)
    rows = methods.others("cpu", sizes("14"), True, None, findings)
    assert [Compared("mean", "14", True, 3.0, 2.0, 1.5)] == rows
    assert "median at 14: no such method" == findings.failures[0]
    assert "exited with 1: too bad" in findings.failures[1]


async def test_methods_are_compared_with_and_without_a_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other_methods.py").write_text("")
    (tmp_path / "neighbour.py").write_text(
        "import time\nprint('at work', flush=True)\ntime.sleep(60)"
    )
    monkeypatch.setattr(methods, "HERE", tmp_path)
    findings = findings_of(tmp_path)
    executor = FakeExecutor(lambda _: alike_as(1.0))
    await methods.measure(executor, "cpu", sizes("10,14"), 2, LATE, findings, None)
    assert [("10", False), ("14", False), ("10", True), ("14", True)] * 2 == [
        (each.size, each.busy) for each in findings.compared
    ]


def test_a_neighbour_that_does_not_work_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "neighbour.py").write_text("import sys; sys.exit(1)")
    monkeypatch.setattr(methods, "HERE", tmp_path)
    with pytest.raises(MachineError, match="neighbour"), methods.neighbour("cpu"):
        pytest.fail("nothing is at work")


def test_the_command_in_the_document_has_no_paths_of_a_machine() -> None:
    given = "--device cuda:0 --into=/tmp/here --kernelbench /tmp/kb --document none --minutes 9"
    assert command(given.split()) == (
        "python benchmarks/measuring.py --device cuda:0 --kernelbench KernelBench --minutes 9"
    )
    assert command([]) == "python benchmarks/measuring.py"
