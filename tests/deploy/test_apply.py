from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from deploy_samples import KERNEL
from package_samples import DOUBLE, DOUBLE_CPP, kernel
from torch import nn
from userpkg.blocks import Stack

import stark
from stark.deploy.bound import GRADIENTS
from stark.languages import language

INPUTS = torch.randn(2, 4, 16), torch.ones(2, 4, 1)


@pytest.fixture
def model() -> Stack:
    return Stack().eval()


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def places(folder: Path) -> list[stark.Kernel | str | Path]:
    made = kernel()
    return [made, made.save(folder / "kernel.py"), made.export(folder / "my_kernel")]


@pytest.mark.parametrize("place", [0, 1, 2], ids=["a kernel", "a file", "a package"])
def test_a_kernel_is_applied_from_where_it_is(model: Stack, tmp_path: Path, place: int) -> None:
    with torch.no_grad():
        expected = model(*INPUTS)
        with stark.apply(model, places(tmp_path)[place]) as applied:
            torch.testing.assert_close(model(*INPUTS), expected)

    assert isinstance(applied, stark.Applied)
    assert 2 == applied.report().kernel_calls


def test_the_files_own_guard_is_the_same(model: Stack, tmp_path: Path) -> None:
    module = imported(kernel().save(tmp_path / "a_kernel_file.py"))
    expected = model(*INPUTS)

    with module.apply(model, ["layers.1"]) as applied:
        torch.testing.assert_close(model(*INPUTS), expected)
        with torch.no_grad():
            torch.testing.assert_close(model(*INPUTS), expected)

    assert (1, {GRADIENTS: 1}) == (
        applied.report().kernel_calls,
        applied.report().original_calls,
    )


def test_a_guarded_module_of_a_file_trains(tmp_path: Path) -> None:
    module = imported(kernel().save(tmp_path / "another_kernel_file.py"))
    guarded, plain = module.Guarded(), module.ModelNew()
    plain.load_state_dict(guarded.state_dict())

    guarded(*INPUTS)[0].sum().backward()

    assert all(parameter.grad is not None for parameter in guarded.parameters())
    with torch.no_grad():
        torch.testing.assert_close(guarded(*INPUTS)[0], plain(*INPUTS))


def test_a_kernel_with_its_own_apply_keeps_it(tmp_path: Path, model: Stack) -> None:
    own = "\n\ndef apply(value):\n    return value\n\n\nGuarded = 5\n"
    using = KERNEL.replace("value=0.5)", "value=apply(0.5))") + own
    made = kernel(source=using)
    module = imported(made.save(tmp_path / "kernel_with_apply.py"))

    assert "Import stark_apply to put the kernel into a model, or stark_Guarded" in made.file
    assert 5 == module.Guarded
    with torch.no_grad(), module.stark_apply(model) as applied:
        model(*INPUTS)
    assert 2 == applied.report().kernel_calls


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class ModelNew: ...", "has no guard: it was not written by this version of STARK"),
        ("import nothing_of_this_name", "cannot be imported here: ModuleNotFoundError"),
    ],
)
def test_other_files_are_refused(model: Stack, tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "other.py").write_text(text)

    with pytest.raises(stark.UsageError, match=reason):
        stark.apply(model, tmp_path / "other.py")


def test_a_changed_package_is_refused(model: Stack, tmp_path: Path) -> None:
    folder = kernel().export(tmp_path / "my_kernel")
    [file] = folder.rglob("kernel.py")
    file.write_text(file.read_text() + "\n")

    with pytest.raises(stark.UsageError, match=r"kernel\.py was changed after the export"):
        stark.apply(model, folder)


def test_without_a_compiler_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = kernel(problem=DOUBLE, source=DOUBLE_CPP, language="cpp").save(tmp_path / "twice.py")
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path / "cache"))

    with pytest.raises(
        stark.UsageError, match=r"This machine lacks a C\+\+ compiler; install g\+\+"
    ):
        stark.apply(nn.ReLU(), made, [""])


def test_weights_of_another_dtype_are_named(model: Stack) -> None:
    applied = stark.apply(model.bfloat16(), kernel())

    idle = applied.report().idle
    assert ["layers.0", "layers.1"] == list(idle)
    said = "no call can run the kernel: layers.0: inner.weight is torch.bfloat16, not torch.float32"
    assert said in str(applied.report())
    model.float()
    assert {} == applied.report().idle


def test_a_kernel_without_its_final_check_is_refused(model: Stack) -> None:
    unchecked = dataclasses.replace(kernel(), confirmed=False)

    with pytest.raises(stark.UsageError, match="attempt 1 has not passed the final check"):
        stark.apply(model, unchecked)


def test_a_class_is_no_model() -> None:
    with pytest.raises(stark.UsageError, match="not into the class Stack"):
        stark.apply(Stack, kernel())  # type: ignore[arg-type]


def test_nothing_that_fits_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(stark.UsageError, match="fits no module: the model has no userpkg"):
        stark.apply(nn.ReLU(), kernel())
    with pytest.raises(stark.UsageError, match="there is no kernel file and no package at"):
        stark.apply(nn.ReLU(), tmp_path / "missing.py")


@pytest.mark.slow
@pytest.mark.skipif(language("cpp").missing() is not None, reason="no C++ compiler")
def test_a_cpp_kernel_is_applied_by_name() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.randn(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(24):
                x = torch.relu(0.9 * x + self.shift)
            return x

    model, x = nn.Sequential(Own(), nn.ReLU()), torch.randn(16384, 64)
    made = kernel(problem=DOUBLE, source=DOUBLE_CPP, language="cpp")

    with torch.no_grad():
        expected = model(x)
        applied = stark.apply(model, made, ["0"])
        torch.testing.assert_close(model(x), expected)
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), expected)
    assert 2 == applied.report().kernel_calls
