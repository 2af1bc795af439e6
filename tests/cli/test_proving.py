"""A real candidate that tries to leave its sandbox."""

from __future__ import annotations

import pytest

from stark.cli import proving
from stark.evaluator.candidate.sandbox.layers import LAYERS, offered

UNTRIED = "tasks"
"""The layer that the probe does not try: it would have to start hundreds of processes."""


def test_no_layer_lets_a_candidate_out() -> None:
    missing = {layer for layer, why_not in offered().items() if why_not is not None}

    found = proving.breaches("cpu")

    assert set(found["its own thread"]) <= missing


def test_without_its_layers_it_gets_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARK_SANDBOX_WITHOUT", ",".join(LAYERS))

    found = proving.breaches("cpu")["its own thread"]

    assert {"network", "processes", "proc", "mounts", "landlock", "seccomp"} <= set(found)
    assert UNTRIED not in found


@pytest.mark.gpu
def test_no_thread_of_a_driver_lets_a_candidate_out() -> None:
    found = proving.breaches("cuda")

    assert {"its own thread": [], "the driver's thread": []} == found
