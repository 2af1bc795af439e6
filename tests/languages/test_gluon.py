from __future__ import annotations

import pytest

from stark.languages import LANGUAGES
from stark.languages.tools import GLUON_COMPILER

GLUON = LANGUAGES["gluon"]


@pytest.mark.parametrize(
    "kernel",
    [
        "from triton.experimental import gluon\n@gluon.jit\ndef k(): pass",
        "import triton.experimental.gluon as g\n@g.jit\ndef k(): pass",
        "from triton.experimental.gluon import jit\n@jit(do_not_specialize=[])\ndef k(): pass",
        "import triton\nfrom triton.experimental import gluon\n@gluon.jit\ndef g(): pass\n@triton.jit\ndef k(): pass",
    ],
)
def test_a_kernel_is_found_under_every_form_of_the_decorator(kernel: str):
    assert GLUON.check(f"{kernel}\nclass ModelNew: pass") is None


@pytest.mark.parametrize(
    "text",
    [
        "from triton.experimental import gluon",
        "import triton\n@triton.jit\ndef k(): pass",
        "SOURCE = '@gluon.jit'",
    ],
)
def test_a_file_without_a_kernel_is_told_so(text: str):
    expected = "The file has no Gluon kernel; write one as a function decorated with @gluon.jit."
    assert expected == GLUON.check(f"{text}\nclass ModelNew: pass")


def test_a_file_belongs_to_one_language_of_triton():
    source = (
        "from triton.experimental import gluon\n@gluon.jit\ndef k(): pass\nclass ModelNew: pass"
    )
    assert ["gluon"] == [name for name, entry in LANGUAGES.items() if entry.check(source) is None]


@pytest.mark.parametrize(
    ("version", "enough"),
    [("3.5.1", False), ("3.6.0", True), ("3.6", True), ("3.9.0", False), ("13.6.0", False)],
)
def test_the_guide_needs_the_triton_that_it_was_written_for(
    monkeypatch: pytest.MonkeyPatch, version: str, enough: bool
):
    monkeypatch.setattr("stark.languages.tools.find_spec", lambda _: True)
    monkeypatch.setattr("stark.languages.tools.version", lambda _: version)
    assert (f"triton {version}" if enough else None) == GLUON_COMPILER.found()
