from __future__ import annotations

from pathlib import Path

import pytest

from stark.languages import LANGUAGES

CUTEDSL = LANGUAGES["cutedsl"]


@pytest.mark.parametrize(
    "kernel",
    [
        "import cutlass.cute as cute\n@cute.kernel\ndef k(): pass",
        "from cutlass import cute\n@cute.kernel\ndef k(): pass",
        "import cutlass.cute\n@cutlass.cute.kernel\ndef k(): pass",
        "from cutlass.cute import kernel\n@kernel\ndef k(): pass",
    ],
)
def test_a_kernel_is_found_under_every_form_of_the_decorator(kernel: str):
    source = f"{kernel}\nclass ModelNew: pass"
    assert ["cutedsl"] == [name for name, entry in LANGUAGES.items() if entry.check(source) is None]


@pytest.mark.parametrize(
    "text",
    [
        "import cutlass.cute as cute\n@cute.jit\ndef k(): pass",
        "import cutlass",
        "SOURCE = '@cute.kernel'",
    ],
)
def test_a_file_without_a_kernel_is_told_so(text: str):
    expected = (
        "The file has no CuTe DSL kernel; write one as a function decorated with @cute.kernel."
    )
    assert expected == CUTEDSL.check(f"{text}\nclass ModelNew: pass")


@pytest.mark.parametrize(
    ("architecture", "compiled_for"), [("sm_90", "sm_90a"), ("sm_89", "sm_89"), (None, None)]
)
def test_a_build_without_a_device_knows_the_architecture(
    tmp_path: Path, architecture: str | None, compiled_for: str | None
):
    assert compiled_for == CUTEDSL.environment(tmp_path, architecture).get("CUTE_DSL_ARCH")
