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
