from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from deploy_samples import KERNEL, PROBLEM
from package_samples import DOUBLE, DOUBLE_CPP, kernel, result

import stark
from stark.cli import app
from stark.core.evaluation import Correct
from stark.deploy.certificate import (
    changed_around,
    changed_files,
    package_folder,
    read_certificate,
)
from support.nodes import EAGER_MS, correct, measurement

USE = """
import sys, torch, my_kernel
assert "stark" not in sys.modules and not any("userpkg" in name for name in sys.modules)
model = my_kernel.Guarded()
x, mask = torch.randn(2, 4, 16), torch.ones(2, 4, 1)
with torch.no_grad():
    model(x, mask)
model(x, mask)[0].sum().backward()
print(my_kernel.apply(torch.nn.Sequential(my_kernel.KERNEL.reference.Model()), ["0"]).report().bound)
print(model._stark.calls, list(model._stark.counts.values()))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return kernel().export(tmp_path / "my_kernel")


def run(code: str, *paths: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code with these folders and installed packages alone; links to checkouts are not followed."""
    libraries = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    path = os.pathsep.join(dict.fromkeys([*map(str, paths), *libraries]))
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_layout_is_that_of_hugging_face(folder: Path) -> None:
    variant = folder / "build" / "torch-universal"

    assert {"README.md", "build", "pyproject.toml"} == {path.name for path in folder.iterdir()}
    assert {"metadata.json", "my_kernel"} == {path.name for path in variant.iterdir()}
    assert KERNEL == (variant / "my_kernel" / "kernel.py").read_text()
    assert PROBLEM == (variant / "my_kernel" / "original.py").read_text()
    assert "my-kernel" == json.loads((variant / "metadata.json").read_text())["name"]
    assert "2.00x vs eager" in (folder / "README.md").read_text()


def test_a_cpp_kernel_is_for_the_cpu(tmp_path: Path) -> None:
    folder = kernel(problem=DOUBLE, source=DOUBLE_CPP, language="cpp").export(tmp_path / "twice")

    assert (folder / "build" / "torch-cpu" / "twice" / "__init__.py").is_file()
    needs = 'dependencies = ["torch", "apache-tvm-ffi", "ninja"]'
    assert needs in (folder / "pyproject.toml").read_text()


def test_without_a_compiler_the_import_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kernel(problem=DOUBLE, source=DOUBLE_CPP, language="cpp").export(tmp_path / "twice")
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path / "cache"))

    ended = run("import twice", folder / "build" / "torch-cpu", folder=tmp_path)

    assert (
        "ImportError: the kernel is compiled when it is imported, which needs a C++ compiler, so install g++ "
        "(`apt install g++`) or set CXX to another compiler"
    ) == ended.stderr.splitlines()[-1]


def test_the_certificate_says_what_was_verified(folder: Path) -> None:
    package = package_folder(folder)
    claimed = read_certificate(package)

    assert [] == list(changed_files(package, claimed))
    assert {"small": 1.0, "large": 2.0} == {n: case.weight for n, case in claimed.cases.items()}
    assert 2.0 == pytest.approx(claimed.cases["large"].speedups["eager"].ratio)
    assert "  - small: 500 µs" in (folder / "README.md").read_text()
    assert claimed.original is not None
    assert "userpkg.blocks:Gated" == claimed.original.name
    assert 2.0 == pytest.approx(claimed.speedups["eager"].ratio)
    assert ("promote", True, "pytorch") == (claimed.effort, claimed.confirmed, claimed.language)
    assert {"kernel.py", "original.py", "guard.py", "__init__.py"} <= claimed.files.keys()


def test_changed_missing_and_added_files_are_named(folder: Path) -> None:
    package = package_folder(folder)
    (package / "bound.py").write_text("")
    (package / "layers.py").unlink()
    (package / "torch.py").write_text("")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "kernel.pyc").write_text("")

    assert {
        "bound.py was changed after the export",
        "layers.py is missing",
        "torch.py was added after the export",
    } == set(changed_files(package, read_certificate(package)))


def test_files_around_the_package_are_certified_too(folder: Path) -> None:
    package, variant = package_folder(folder), folder / "build" / "torch-universal"
    claimed = read_certificate(package)
    assert [] == list(changed_around(folder, package, claimed))

    (folder / "pyproject.toml").write_text("")
    (folder / "README.md").unlink()
    (folder / "setup.py").write_text("")
    (folder / "build" / "torch-cuda").symlink_to(variant)
    (variant / "other").mkdir()
    (variant / "other" / "__init__.py").write_text("")
    copies = folder / ".build" / "lib" / "my_kernel"
    copies.mkdir(parents=True)
    (copies / "kernel.py").write_bytes((package / "kernel.py").read_bytes())
    (copies / "guard.py").write_text("")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("")

    assert {
        "pyproject.toml was changed after the export",
        "README.md is missing",
        "setup.py was added after the export",
        "build/torch-cuda was added after the export",
        "build/torch-universal/other/__init__.py was added after the export",
        ".build/lib/my_kernel/guard.py was added after the export",
    } == set(changed_around(folder, package, claimed))
    assert [] == list(changed_files(package, claimed))


@pytest.mark.slow
def test_it_is_imported_without_stark(folder: Path, tmp_path: Path) -> None:
    ended = run(USE, folder / "build" / "torch-universal", folder=tmp_path)

    assert "{'0': 'Model'}" in ended.stdout, ended.stderr
    assert "1 [1]" in ended.stdout


@pytest.mark.slow
def test_pip_installs_it(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    target = tmp_path / "site"
    install = "install --no-deps --no-index --no-build-isolation --quiet --target".split()
    pip = [sys.executable, "-m", "pip", *install, str(target), str(folder)]
    subprocess.run(pip, check=True, timeout=300)

    ended = run(USE, target, folder=tmp_path)

    assert "{'0': 'Model'}" in ended.stdout, ended.stderr
    assert [] == list(changed_files(target / "my_kernel", read_certificate(target / "my_kernel")))
    package = package_folder(folder)
    assert [] == list(changed_files(package, read_certificate(package)))
    assert [] == list(changed_around(folder, package, read_certificate(package)))


def test_a_layer_for_kernelize(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Hugging Face's `kernels` asks of a layer, and does with it."""
    import importlib
    import inspect
    from types import MethodType

    torch = pytest.importorskip("torch")
    from userpkg.blocks import Config, Gated

    monkeypatch.syspath_prepend(str(folder / "build" / "torch-universal"))
    layer = importlib.import_module("my_kernel").layers.Gated
    module = Gated(Config()).eval()
    x, mask = torch.randn(2, 4, 16), torch.ones(2, 4, 1)
    expected = module(x, mask)
    kinds = [p.kind for p in inspect.signature(layer.forward).parameters.values()]

    module.forward = MethodType(layer.forward, module)  # type: ignore[method-assign]
    with torch.no_grad():
        torch.testing.assert_close(module(x, mask), expected)

    own = {name for name, _ in inspect.getmembers(layer)}
    added = own - {name for name, _ in inspect.getmembers(torch.nn.Module)}
    assert {"has_backward", "can_torch_compile"} == added
    assert layer.__init__ is torch.nn.Module.__init__
    assert kinds == [p.kind for p in inspect.signature(Gated.forward).parameters.values()]
    assert 1 == module._stark_late.forward.__func__.__globals__["stark_bound"].calls


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("full", "is not empty"),
        *(
            (n, "cannot name a package")
            for n in ("1st", "_k", "naïve", "lambda", "torch", "triton", "json")
        ),
    ],
)
def test_folders_that_cannot_be_written(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")

    with pytest.raises(stark.UsageError, match=reason):
        kernel().export(tmp_path / name)
    assert "mine" == (tmp_path / "full" / "notes.txt").read_text()


def test_the_command_exports_a_stored_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = Path(stark.__file__).parent / "demo" / "cpp.json.gz"

    assert 0 == app.main(["export", str(recording), str(tmp_path / "best")])
    assert 0 == app.main(["export", str(recording), str(tmp_path / "second"), "--attempt", "1"])
    assert 2 == app.main(["export", str(recording), str(tmp_path / "none"), "--attempt", "99"])

    assert "best: attempt" in capsys.readouterr().out
    readme = (tmp_path / "best" / "README.md").read_text()
    assert 'applied = best.apply(model, ["path.of.a.module"])' in readme
    assert 1 == read_certificate(package_folder(tmp_path / "second")).attempt
    assert not (tmp_path / "none").exists()


def test_an_attempt_is_exported_by_its_number() -> None:
    assert 1 == result().attempt_kernel(1).attempt
    with pytest.raises(stark.UsageError, match="run gated-12ab has no correct attempt 2"):
        result().attempt_kernel(2)


def test_the_command_names_training_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = result(problem=PROBLEM.replace('"training": False', '"training": True'))
    monkeypatch.setattr("stark.cli.deploying.load_run", lambda *_: trained)

    assert 0 == app.main(["export", "last", str(tmp_path / "trained")])

    assert "mode: train(): kernels are verified for that mode only" in capsys.readouterr().out


def test_the_command_names_a_claim_that_verify_may_not_confirm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = correct(0.5)
    assert isinstance(found, Correct)
    unsure = measurement(EAGER_MS).model_copy(update={"resolution_ms": 9 * EAGER_MS})
    references = {**found.references, "compile": unsure}
    noisy = result(DOUBLE, evaluation=found.model_copy(update={"references": references}))
    for run in (result(DOUBLE, evaluation=found), noisy):
        monkeypatch.setattr("stark.cli.deploying.load_run", lambda *_, run=run: run)
        assert 0 == app.main(["export", "last", str(tmp_path / f"my_{run is noisy}")])

    said = capsys.readouterr().out.split()
    assert 1 == " ".join(said).count("may give no verdict")
    assert "The speedup vs compile was too noisy" in " ".join(said)
