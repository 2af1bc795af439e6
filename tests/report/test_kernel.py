from __future__ import annotations

import ast
import platform
import runpy
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from report_samples import CANDIDATE, CPU, PROBLEM, RUN, node_of_source, reference

from stark.core.candidate import Candidate
from stark.core.problem import Problem
from stark.core.python import bindings
from stark.report.kernel import facts, kernel_file

SOURCES = {
    "plain": CANDIDATE,
    "docstring": '"""Fused."""\n' + CANDIDATE,
    "future": "from __future__ import annotations\n\n" + CANDIDATE,
    "docstring and future": '"""Fused."""\nfrom __future__ import annotations\n' + CANDIDATE,
}


def written(source: str) -> str:
    return kernel_file(RUN, node_of_source(source), reference())


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_source_is_unchanged_and_the_file_parses(source: str) -> None:
    text = written(source)

    assert source.rstrip() in text
    compile(text, "kernel.py", "exec")


def test_the_docstring_has_its_origin_and_what_was_verified() -> None:
    said = ast.get_docstring(ast.parse(written(CANDIDATE)))

    assert said is not None
    for fact in (
        "linear",
        "linear-12ab, attempt 4",
        "2.00x vs eager [2.00, 2.00], faster",
        'Invented "CPU" \\x',
        "torch 2.13.0",
        "error 2e-07 (reference 1e-07, allowed 2e-05; meets reference); relative RMS",
        "Precision: fp32-split was asked for",
        "imports torch\n",
        "Verified:  the forward pass on float32[8, 16]; no other shapes were tried",
        "Gradients: NOT supported by ModelNew: for inference only; apply and Guarded run the original",
        "Importing: needs a C++ compiler, ninja, apache-tvm-ffi, PyTorch, but not STARK",
    ):
        assert fact in said


def test_a_kernel_with_a_backward_pass_is_not_called_inference_only() -> None:
    backward = "\n\nclass Function:\n    def backward(context, *gradients):\n        ...\n"

    assert "defines a backward pass, which was NOT verified" in written(CANDIDATE + backward)


def test_verified_gradients_are_named() -> None:
    run = RUN.model_copy(update={"problem": RUN.problem.with_backward()})

    text = kernel_file(run, node_of_source(CANDIDATE), reference())

    assert "Verified:  forward and backward on float32[8, 16]" in text
    assert "Gradients: verified and timed with the forward pass" in text


def test_the_judge_gets_the_candidates_own_class() -> None:
    """What `ModelNew` is called in the file is the candidate's class: nothing below binds that name again."""
    tree = ast.parse(written(CANDIDATE))

    assert ["ModelNew"] == [name for name, _ in bindings(tree) if name == "ModelNew"]


def test_the_header_names_the_original() -> None:
    captured = (
        PROBLEM + 'ORIGINAL = {"name": "pkg.mod:Block", "arguments": ["x"], "training": True}\n'
    )
    run = RUN.model_copy(update={"problem": Problem(name="linear", source=captured)})

    assert "Original:  pkg.mod:Block in train()" in kernel_file(
        run, node_of_source(CANDIDATE), reference()
    )


def test_a_kernel_that_fails_at_other_shapes_says_so() -> None:
    node = node_of_source(CANDIDATE)
    update = {"effort": "promote", "generalizes": False, "shapes_tried": ("ROWS = 33",)}
    fixed = node.evaluation.model_copy(update=update)

    text = kernel_file(RUN, node.model_copy(update={"evaluation": fixed}), reference())

    assert "float32[8, 16]; not always correct with ROWS = 33" in text


def test_a_source_keeps_its_own_docstring() -> None:
    text = written(SOURCES["docstring"])

    assert "Fused." == ast.get_docstring(ast.parse(text))
    assert text.startswith("# A kernel for linear")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return tmp_path / "kernel.py"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=folder, timeout=120
    )


@pytest.mark.slow
def test_as_a_program_it_compares_itself_with_the_reference(kernel: Path) -> None:
    kernel.write_text(written(SOURCES["docstring and future"]))

    done = run(kernel.parent, "-I", str(kernel))

    assert 0 == done.returncode, done.stderr
    assert "relative RMS difference to the reference: 0" in done.stdout


@pytest.mark.slow
def test_the_guard_needs_no_stark(kernel: Path) -> None:
    """Another shape and gradients run the original; ModelNew stays the kernel alone, for the judge."""
    node = node_of_source(CANDIDATE)
    here = CPU.model_copy(update={"architecture": platform.machine()})
    evaluation = node.evaluation.model_copy(update={"device": here})
    node = node.model_copy(update={"evaluation": evaluation})
    kernel.write_text(kernel_file(RUN, node, reference()))
    code = """
import sys, torch
sys.modules["stark"] = None
sys.path.insert(0, ".")
import kernel
model = kernel.Guarded()
with torch.no_grad():
    model(torch.randn(8, 16)), model(torch.randn(9, 16))
model(torch.randn(8, 16)).sum().backward()
print(model._stark.calls, model._stark.counts, all(p.grad is not None for p in model.parameters()))
print(kernel.ModelNew.__mro__[1] is torch.nn.Module, "_stark" in kernel.ModelNew(16).__dict__)
"""
    done = run(kernel.parent, "-I", "-c", code)

    assert "" == done.stderr
    assert "1 {'x has another shape': 1, 'gradients are needed that" in done.stdout
    assert "True\nTrue False" in done.stdout


# What the judge accepts, it accepts too.

MODEL = """
import torch
import torch.nn as nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, x):
{forward}
"""

INPUTS = """

def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return []
"""


def model(name: str, forward: str, init: str = "pass") -> str:
    return MODEL.format(name=name, init=" " * 8 + init, forward=" " * 8 + forward)


class Pair(NamedTuple):
    """Of a reference and a kernel: forward, then what the constructor does."""

    reference: tuple[str, ...]
    kernel: tuple[str, ...]

    def write(self, path: Path) -> None:
        problem = Problem(name="pair", source=model("Model", *self.reference) + INPUTS)
        run = RUN.model_copy(update={"problem": problem})
        node = node_of_source(model("ModelNew", *self.kernel))
        path.write_text(kernel_file(run, node, reference()))


SUM = "return x + self.a"
LINEAR = "self.a = nn.Linear(16, 16)"
ACCEPTED = {
    "weights under other names": Pair(
        ("return self.a(x)", LINEAR), ("return self.b(x)", LINEAR.replace(".a", ".b"))
    ),
    "one more buffer": Pair(
        ("return self.a(x)", LINEAR),
        ("return self.a(x)", LINEAR + "; self.register_buffer('room', torch.empty(3))"),
    ),
    "a drawn attribute": Pair((SUM, "self.a = torch.randn(16)"), (SUM, "self.a = torch.randn(16)")),
    "an input that is changed": Pair(("return x.mul_(2) + 1",), ("return x.mul_(2) + 1",)),
    "None beside a tensor": Pair(("return x * 2, None",), ("return x * 2",)),
    "a dict filled otherwise": Pair(
        ("return {'a': x, 'b': x.sum()}",), ("return {'b': x.sum(), 'a': x}",)
    ),
    "complex numbers": Pair(("return x * 1j",), ("return x * 1j",)),
}

REFUSED = {
    "an input that only the kernel changes": Pair(("return x * 2",), ("return x.mul_(2)",)),
    "an input that only the reference changes": Pair(("return x.mul_(2)",), ("return x * 2",)),
    "another imaginary part": Pair(("return x * 1j",), ("return x * 0j",)),
    "a dict with swapped values": Pair(
        ("return {'a': x, 'b': x + 1}",), ("return {'a': x + 1, 'b': x}",)
    ),
}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as a program in this process: importing torch anew takes seconds."""
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "reference", None)


@pytest.mark.usefixtures("here")
def test_it_says_when_the_outputs_differ(kernel: Path) -> None:
    kernel.write_text(written(CANDIDATE.replace("torch.relu(", "1.01 * torch.relu(")))

    with pytest.raises(SystemExit, match=r"The outputs differ from the reference's\."):
        runpy.run_path(str(kernel), run_name="__main__")


@pytest.mark.usefixtures("here")
def test_as_a_module_it_defines_the_kernel_and_its_guard(kernel: Path) -> None:
    kernel.write_text(written(CANDIDATE))

    found = sorted(name for name in runpy.run_path(str(kernel)) if not name.startswith("__"))

    assert "Guarded ModelNew _STARK apply nn torch".split() == found


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("pair", ACCEPTED.values(), ids=ACCEPTED)
def test_what_the_judge_accepts_runs(
    pair: Pair, kernel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.write(kernel)

    runpy.run_path(str(kernel), run_name="__main__")

    assert "relative RMS difference to the reference: 0 " in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_the_kernels_own_names_keep_their_meaning(
    kernel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "DEVICE, seconds, results, built = 2, 3, 4, 5\n"
    problem = Problem(name="pair", source=model("Model", "return x * 14") + INPUTS)
    node = node_of_source(
        own + model("ModelNew", "return x * (DEVICE + seconds + results + built)")
    )
    kernel.write_text(kernel_file(RUN.model_copy(update={"problem": problem}), node, reference()))

    runpy.run_path(str(kernel), run_name="__main__")

    assert "relative RMS difference to the reference: 0 " in capsys.readouterr().out


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("pair", REFUSED.values(), ids=REFUSED)
def test_what_the_judge_refuses_differs(pair: Pair, kernel: Path) -> None:
    pair.write(kernel)

    with pytest.raises(SystemExit, match="The outputs differ"):
        runpy.run_path(str(kernel), run_name="__main__")


@pytest.mark.parametrize(
    ("language", "source", "expected"),
    [
        ("cpp", CANDIDATE, "torch 2.13.0, compilers c++ 13.2, ninja 1.11"),
        ("pytorch", CANDIDATE, "torch 2.13.0"),
        (
            "pytorch",
            f"{CANDIDATE}\nfast = torch.compile(ModelNew())\n",
            "torch 2.13.0, compilers c++ 13.2, ninja 1.11",
        ),
    ],
    ids=["C++", "PyTorch", "torch.compile"],
)
def test_only_compilers_that_the_kernel_needs_are_stated(
    language: str, source: str, expected: str
) -> None:
    tools = "c++ 13.2, Build cuda_12.9.r12.9/compiler.1, ninja 1.11, triton 3.5"
    versions = {"torch": "2.13.0", "compilers": tools, "languages": "cpp, pytorch"}
    found = reference().model_copy(update={"versions": versions})
    node = node_of_source(source)
    made = node.model_copy(update={"candidate": Candidate(language=language, source=source)})

    stated = dict(facts(RUN, made, found))

    assert expected == stated["Versions"]
