"""The functions that the guides to Gluon and CuTe DSL name are in the installed packages."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module

import pytest

from stark.languages import LANGUAGES

GLUON, CUTEDSL = LANGUAGES["gluon"], LANGUAGES["cutedsl"]

HOPPER = "triton.experimental.gluon.language.nvidia.hopper"
MODULES = {
    "gluon": {
        "gl": "triton.experimental.gluon.language",
        "gluon": "triton.experimental.gluon",
        "tma": f"{HOPPER}.tma",
        "mbarrier": f"{HOPPER}.mbarrier",
        "async_copy": f"{HOPPER}.async_copy",
    },
    "cutedsl": {
        "cute": "cutlass.cute",
        "cutlass": "cutlass",
        "pipeline": "cutlass.pipeline",
        "warpgroup": "cutlass.cute.nvgpu.warpgroup",
        "cpasync": "cutlass.cute.nvgpu.cpasync",
        "sm90": "cutlass.utils.hopper_helpers",
    },
}
"""By language: the modules behind the short names in its texts."""


def named(language: str) -> set[str]:
    """Every dotted name that begins with a module's short name, in the guide and in the techniques of the language."""
    own = (each for each in LANGUAGES[language].techniques if each.name.startswith(language))
    texts = [LANGUAGES[language].guide, *(each.text for each in own)]
    begins = "|".join(MODULES[language])
    return set(re.findall(rf"(?<![\w.])(?:{begins})(?:\.\w+)+", "\n".join(texts)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "language",
    [
        pytest.param(
            "gluon", marks=pytest.mark.skipif(GLUON.missing() is not None, reason="no Gluon")
        ),
        pytest.param(
            "cutedsl", marks=pytest.mark.skipif(CUTEDSL.missing() is not None, reason="no CuTe DSL")
        ),
    ],
)
def test_every_name_exists(language: str) -> None:
    names = named(language)
    assert 30 < len(names)
    for name in names:
        short, *rest = name.split(".")
        reduce(getattr, rest, import_module(MODULES[language][short]))
