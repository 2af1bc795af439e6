"""A module is captured by name in a process of its own, and bad input is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from stark.capturing.__main__ import main
from stark.problems import load

BAD = {
    "no such package": (
        "nothing.here:Block",
        "x:x",
        "nothing.here cannot be imported (ModuleNotFoundError: No module",
    ),
    "no name": (
        "ownpkg.block",
        "x:x",
        "'ownpkg.block' is no name of an object; write package.module:Object",
    ),
    "no such object": ("ownpkg.block:Nothing", "x:x", "ownpkg.block has no Nothing"),
    "no module": ("ownpkg.ops:SCALE", "x:x", "ownpkg.ops:SCALE is a float; name an nn.Module"),
    "needs arguments": (
        "ownpkg.block:Norm",
        "x:x",
        "ownpkg.block:Norm cannot be made without arguments (TypeError",
    ),
    "no such inputs": ("ownpkg.block:Block", "ownpkg.block:nothing", "ownpkg.block has no nothing"),
    "inputs of another type": (
        "ownpkg.block:Block",
        "ownpkg.ops:SCALE",
        "ownpkg.ops:SCALE gives a float; return a tuple",
    ),
    "inputs that fail": (
        "ownpkg.block:Block",
        "ownpkg.ops:never_called",
        "ownpkg.ops:never_called fails (TypeError",
    ),
    "inputs that do not fit": (
        "torch.nn:Identity",
        "ownpkg.block:example",
        "Identity cannot be called with ownpkg.block:example (TypeError",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_with_2_and_one_sentence(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module, inputs, said = BAD[name]

    code = main([module, "--inputs", inputs])

    out, err = capsys.readouterr()
    assert (2, "", 1) == (code, out, len(err.splitlines()))
    assert err.startswith(f"error: {said}")


def test_a_module_is_written_to_a_file_with_all_its_cases(tmp_path: Path) -> None:
    file = tmp_path / "block.py"

    assert 0 == main(
        [
            "ownpkg.block:Block",
            "--inputs",
            "ownpkg.block:examples",
            "--output",
            str(file),
            "--backward",
        ]
    )

    problem = load(str(file))
    assert {"2x16x32", "2x5x32"} == set(problem.declared.cases)
    assert problem.declared.backward
