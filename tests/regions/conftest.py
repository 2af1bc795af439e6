from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def certain_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that makes any call of its own saves more than its parts, however noisy the machine is."""
    monkeypatch.setattr("stark.regions.cut.MARGIN", 1.0)
