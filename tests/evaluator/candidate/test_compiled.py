"""Calls into extensions are recorded under their names, and what extensions call is read from their files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

from torch.autograd import profiler

from stark.evaluator.candidate import compiled
from stark.evaluator.candidate.compiled import named, scalar_calls
from stark.evaluator.candidate.trace import COMPILED


def extension() -> ModuleType:
    """What torch's `load_inline` returns, made of Python."""
    made = ModuleType("made")
    made.__file__ = "/build/made.so"
    made.double = lambda x: 2 * x  # type: ignore[attr-defined]
    made.VERSION = 3  # type: ignore[attr-defined]
    return made


def test_functions_of_an_extension_are_recorded_while_a_profile_is_taken() -> None:
    kernels = extension()
    namespace = {"kernels": kernels, "sys": sys, "number": 4}

    with profiler.profile() as profile, named(namespace):
        assert 6 == namespace["kernels"].double(3)  # type: ignore[attr-defined]
        assert 3 == namespace["kernels"].VERSION  # type: ignore[attr-defined]
        assert (sys, 4) == (namespace["sys"], namespace["number"])

    assert kernels is namespace["kernels"]
    assert f"{COMPILED}double" in {event.name for event in profile.function_events}


def test_extensions_stand_in_their_place_again_after_an_error() -> None:
    kernels = extension()
    namespace = {"kernels": kernels}

    with pytest.raises(TypeError), named(namespace):
        namespace["kernels"].double(None)

    assert kernels is namespace["kernels"]


def test_scalar_functions_are_those_of_extensions_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = tmp_path / "work" / "ours.so", tmp_path / "libtheirs.so"
    ours.parent.mkdir()
    ours.write_bytes(b"\0expf\0logf\0_ZGVdN8v_tanhf\0my_erff\0expf\0memcpy\0")
    theirs.write_bytes(b"\0powf\0")
    maps = tmp_path / "maps"
    maps.write_text(
        f"7f00-7f01 r-xp 0 00:1 1 {ours}\n7f02-7f03 r-xp 0 00:1 2 {theirs}\n7f04 [heap]\n"
    )

    assert ["expf", "logf"] == scalar_calls(ours.parent, maps)
    monkeypatch.setattr(compiled, "MAX_BYTES", 20)
    assert [] == scalar_calls(ours.parent, maps), "too large"
    assert [] == scalar_calls(ours.parent, tmp_path / "missing")
