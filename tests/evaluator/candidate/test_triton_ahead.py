from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from stark.evaluator.candidate.triton_ahead import prebuilt_hook

DRIVER = "int version(void) { return 1; }\n"


def test_the_module_that_is_built_already_is_handed_out(tmp_path: Path) -> None:
    source = tmp_path / "main.c"
    source.write_text(DRIVER)

    built = prebuilt_hook(DRIVER, b"built ahead")("driver", str(source), str(tmp_path), [], [], [])

    assert b"built ahead" == Path(built).read_bytes()


def test_every_other_module_is_compiled(tmp_path: Path) -> None:
    source = tmp_path / "main.c"
    source.write_text(DRIVER.replace("1", "2"))

    built = prebuilt_hook(DRIVER, b"built ahead")(
        "launcher", str(source), str(tmp_path), [], [], []
    )

    assert Path(built).read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize("module", ["sympy", "triton.experimental.gluon.nvidia.hopper"])
def test_what_a_first_call_imports_is_ready(module: str) -> None:
    asked = f"import sys, stark.evaluator.candidate.triton_ahead; print({module!r} in sys.modules)"

    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)

    assert "True\n" == found.stdout
