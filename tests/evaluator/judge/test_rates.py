"""What judges know of a device's rates, each after the others."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from stark.core.device import Device
from stark.evaluator.judge import rates
from stark.evaluator.judge.processes import processor
from stark.evaluator.judge.rates import ENOUGH, PATIENT, VALID_S, Rate, Rates
from support.nodes import CPU

NOW_S = 1e9
SHEET = CPU.model_copy(
    update={
        "peak_tflop_s": {"fp32": 0.4},
        "bandwidth_gb_s": 50.0,
        "bandwidths_gb_s": {64: 9.0, 128: 1.0},
    }
)


def after(*measured: float, judges: int = 1) -> Rate:
    rate = Rate()
    for each in measured:
        rate = rate.after(each, judges, NOW_S)
    return rate


def test_the_highest_rates_count() -> None:
    busy = CPU.model_copy(
        update={
            "peak_tflop_s": {"fp32": 0.1, "bf16": 1.0},
            "bandwidth_gb_s": 60.0,
            "bandwidths_gb_s": {64: 3.0, 128: 7.0},
        }
    )

    found = Rates().after(SHEET, 1, NOW_S).after(busy, 1, NOW_S).of(busy)

    assert {"fp32": 0.4, "bf16": 1.0} == found.peak_tflop_s
    assert 60.0 == found.bandwidth_gb_s
    assert {64: 9.0, 128: 7.0} == found.bandwidths_gb_s


def test_a_rate_is_confirmed_once_enough_judges_have_reached_it() -> None:
    faster = SHEET.model_copy(update={"bandwidth_gb_s": 60.0})
    known = Rates()
    said = []
    for sheet in (SHEET, SHEET, SHEET, faster, SHEET, faster, faster):
        known = known.after(sheet, 1, NOW_S)
        said.append(known.of(sheet).unconfirmed)

    all_rates = ("memory", "fp32", "64", "128")
    assert [all_rates, all_rates, (), ("memory",), ("memory",), ("memory",), ()] == said


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ((10.0, 10.4), (10.4, 2)),
        ((10.0, 10.6), (10.6, 1)),
        ((10.0, 9.1), (10.0, 2)),
        ((10.0, 8.9), (10.0, 1)),
    ],
)
def test_a_judge_that_measures_about_a_rate_has_reached_it(
    measured: tuple[float, ...], expected: tuple[float, int]
) -> None:
    rate = after(*measured)

    assert expected == (rate.highest, rate.judges)


def test_a_rate_that_no_judge_reaches_for_long_is_forgotten() -> None:
    slower, later_s = after(10.0, 10.0).after(5.0, 1, NOW_S + VALID_S), NOW_S + VALID_S + 1

    assert 10.0 == slower.highest
    assert Rate(highest=5.0, judges=1, reached_s=later_s) == slower.after(5.0, 1, later_s)


def test_judges_with_one_folder_know_each_others_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def measure(device: torch.device, long: bool) -> Device:
        asked.append(long)
        return SHEET.model_copy(update={"bandwidth_gb_s": 60.0 - len(asked)})

    monkeypatch.setattr(rates, "measure_device", measure)
    monkeypatch.setattr(rates, "_weight", lambda device: 1)
    found = [rates.measured(torch.device("cpu"), tmp_path) for _ in range(ENOUGH + 1)]
    monkeypatch.setattr(processor, "name", lambda: "another")
    other = rates.measured(torch.device("cpu"), tmp_path)

    assert [59.0] * 4 == [each.bandwidth_gb_s for each in found]
    assert [True, True, True, False, True] == asked
    assert 55.0 == other.bandwidth_gb_s


def test_judges_do_not_measure_long_for_ever() -> None:
    known = Rates()
    for judge in range(PATIENT):
        assert known.are_doubtful
        known = known.after(SHEET.model_copy(update={"bandwidth_gb_s": 2.0**judge}), 1, NOW_S)

    assert not known.are_doubtful
    assert ("memory",) == known.unconfirmed


@pytest.mark.parametrize("in_the_way", ["devices", "a file that says infinity"])
def test_a_file_that_cannot_be_used_changes_nothing(
    in_the_way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "measure_device", lambda device, long: SHEET)
    cpu = torch.device("cpu")
    if in_the_way == "devices":
        (tmp_path / "devices").write_text("in the way")
    else:
        rates.measured(cpu, tmp_path)
        (file,) = (tmp_path / "devices").iterdir()
        file.write_text('{"judges": 9, "by_name": {"memory": {"highest": Infinity}}}')

    assert SHEET.bandwidth_gb_s == rates.measured(cpu, tmp_path).bandwidth_gb_s


@pytest.mark.parametrize(
    ("load", "virtual", "threads", "expected"),
    [
        (0.1, False, 4, ENOUGH),
        (0.1, True, 4, 1),
        (3.0, False, 8, 1),
        (3.0, False, 4, 0),
        (3.0, True, 8, 1),
    ],
)
def test_only_a_quiet_machine_without_neighbours_needs_one_judge(
    load: float, virtual: bool, threads: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(processor, "is_virtual", lambda: virtual)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)

    assert expected == rates._weight(torch.device("cpu"))
    assert ENOUGH == rates._weight(torch.device("cuda"))
