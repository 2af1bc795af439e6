from __future__ import annotations

import os
from pathlib import Path

import pytest

from stark.evaluator.candidate.sandbox import bounds


def test_where_the_system_refuses_to_yield_programs_run_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuses)
    for place in (tmp_path / "no folder/autogroup", tmp_path / "autogroup"):
        monkeypatch.setattr(bounds, "AUTOGROUP", place)
        bounds.yield_cores()

    assert bounds.LEAST == place.read_text(), "the session yields without the policy too"
