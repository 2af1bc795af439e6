"""What a program may read of a Python environment."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from stark.evaluator.candidate.sandbox import view


def test_an_environment_is_readable_but_for_where_it_installs_from(tmp_path: Path) -> None:
    for name in ("bin", "lib", "pyvenv.cfg", "pip.conf"):
        (tmp_path / name).mkdir()

    found = set(view._tools({"VIRTUAL_ENV": str(tmp_path)}))

    assert {tmp_path / name for name in ("bin", "lib", "pyvenv.cfg")} == found
    assert not [path for path in view.of_machine() if path.name == "pip.conf"]


def test_an_environment_that_is_gone_is_nothing_to_read(tmp_path: Path) -> None:
    assert [] == list(view._tools({"VIRTUAL_ENV": str(tmp_path / "gone")}))


def test_of_several_gpus_a_program_may_use_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = ["null", "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "sda"]
    for number, place in enumerate(("0000:0f:00.0", "0000:2d:00.0")):
        (tmp_path / place).mkdir()
        told = f"Model: \t NVIDIA H200\nGPU UUID: \t GPU-{number}a\nDevice Minor: \t {number}\n"
        (tmp_path / place / "information").write_text(told)
    monkeypatch.setattr(view, "GPUS", tmp_path)
    monkeypatch.setattr(view, "gpus", view.gpus.__wrapped__)
    monkeypatch.setattr(view.os, "listdir", lambda _: nodes)

    def names(shown: str) -> list[str]:
        return [path.name for path in view.devices({"CUDA_VISIBLE_DEVICES": shown})]

    assert ["null", "nvidia1", "nvidiactl", "nvidia-uvm"] == names("GPU-1a")
    assert ["null", "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"] == names("MIG-1")
