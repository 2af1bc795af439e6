"""What a judge knows of its device."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from stark.evaluator.judge.machine import best_known
from support.nodes import CPU


def test_the_highest_rate_that_was_measured_is_kept(tmp_path: Path) -> None:
    best_known(
        CPU.model_copy(
            update={
                "peak_tflop_s": {"fp32": 0.4},
                "bandwidth_gb_s": 50.0,
                "bandwidths_gb_s": {64: 9.0, 128: 1.0},
            }
        ),
        tmp_path,
    )

    busy = CPU.model_copy(
        update={
            "peak_tflop_s": {"fp32": 0.1, "bf16": 1.0},
            "bandwidth_gb_s": 60.0,
            "bandwidths_gb_s": {64: 3.0, 128: 7.0},
        }
    )
    found = best_known(busy, tmp_path)

    assert {"fp32": 0.4, "bf16": 1.0} == found.peak_tflop_s
    assert 60.0 == found.bandwidth_gb_s
    assert {64: 9.0, 128: 7.0} == found.bandwidths_gb_s


def test_another_device_has_its_own_rates(tmp_path: Path) -> None:
    best_known(CPU, tmp_path)
    slower = CPU.model_copy(update={"name": "another", "bandwidth_gb_s": 1.0})

    assert 1.0 == best_known(slower, tmp_path).bandwidth_gb_s


def test_a_file_that_cannot_be_read_or_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "devices").write_text("in the way")

    assert CPU == best_known(CPU, tmp_path)
