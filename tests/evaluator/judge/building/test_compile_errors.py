from __future__ import annotations

from pathlib import Path

import pytest

from stark.evaluator.judge.building.builds import Built, complaint
from stark.evaluator.judge.building.complaints import is_compile_error

ASSERTED = (
    "triton.compiler.errors.CompileTimeAssertionFailure",
    "triton.compiler.errors.CompilationError",
    "builtins.Exception",
)

PTXAS = """PTXASError: PTXAS error: Internal Triton PTX codegen error
`ptxas` stderr:
ptxas /tmp/tmp0a1b.ptx, line 41; error   : Not a name of any known instruction: 'nonsense'
ptxas fatal   : Ptx assembly aborted due to errors

Repro command: /opt/triton/bin/ptxas -lineinfo -v --gpu-name=sm_90a /tmp/tmp0a1b.ptx -o /tmp/tmp0a1b.ptx.o

  line 9, in forward: twice[(1,)](x, y)"""

PRINTED = """/cache/key/candidate.py:6:23: error: 'tt.trans' op result shape must match
    turned = tl.trans(x)
                      ^
/cache/key/candidate.py:6:23: note: see current operation: %12 = "tt.trans"(%11)"""


@pytest.mark.parametrize(
    ("types", "text"),
    [
        (ASSERTED, "CompileTimeAssertionFailure: at 2:4:"),
        (("triton.runtime.errors.PTXASError",), PTXAS),
        (("builtins.RuntimeError",), "RuntimeError: PassManager::run failed\n  line 3, in f: g()"),
        (("builtins.RuntimeError",), "RuntimeError: Error building extension 'relu': [1/2] c++"),
        (("builtins.RuntimeError",), "RuntimeError: ninja exited with status 1\nstdout:"),
        (
            ("builtins.ValueError",),
            "ValueError: no kernel\nRuntimeError: ninja exited with status 1",
        ),
    ],
)
def test_what_compilers_raise_is_told(types: tuple[str, ...], text: str) -> None:
    assert is_compile_error(types, text)


@pytest.mark.parametrize(
    ("types", "text"),
    [
        (("triton.runtime.errors.InterpreterError",), "InterpreterError: IndexError('x')"),
        (("builtins.RuntimeError",), "RuntimeError: CUDA error: an illegal memory access"),
        (("builtins.ValueError",), "ValueError: ninja exited with status 1"),
        ((), ""),
    ],
)
def test_what_a_run_raises_is_none(types: tuple[str, ...], text: str) -> None:
    assert not is_compile_error(types, text)


def test_the_assemblers_words_are_kept() -> None:
    said = complaint(Built(Path("/cache/key")), PTXAS, "", "")

    assert (
        "ptxas /tmp/tmp0a1b.ptx, line 41; error   : Not a name of any known instruction: 'nonsense'"
        == said.splitlines()[0]
    )


def test_what_a_failed_pass_printed_is_its_error() -> None:
    said = complaint(
        Built(Path("/cache/key")), "RuntimeError: PassManager::run failed", PRINTED, ""
    )

    assert [
        "candidate.py:6:23: error: 'tt.trans' op result shape must match",
        "    turned = tl.trans(x)",
        "                      ^",
    ] == said.splitlines()[:3]
