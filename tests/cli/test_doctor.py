from __future__ import annotations

import pytest
from cli_samples import Stark

from stark.cli import doctor

TORCH = doctor.Torch("2.13.0", None, [])


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_torch", lambda: TORCH)


def test_keys_are_told_and_never_printed(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-secret")

    ended = stark("doctor")

    assert "key in ANTHROPIC_API_KEY" in ended.out
    assert "the-secret" not in ended.out + ended.err


def test_without_torch_nothing_works(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_torch", lambda: "No module named 'torch'; install it")

    ended = stark("doctor", "--json")

    assert 2 == ended.code
    assert [] == ended.document["usable"]
    findings = {finding["name"]: finding for finding in ended.document["findings"]}
    assert "wrong" == findings["torch"]["mark"]


def test_a_language_without_its_device_is_no_fault(stark: Stark) -> None:
    findings = {f["name"]: f for f in stark("doctor", "--json").document["findings"]}

    assert "absent" == findings["triton"]["mark"]


def test_a_store_that_cannot_be_written_is_named(stark: Stark) -> None:
    findings = stark("doctor", "--json", "--store", "sqlite:////proc/stark.db").document["findings"]

    assert "wrong" == next(f["mark"] for f in findings if f["name"] == "store")
