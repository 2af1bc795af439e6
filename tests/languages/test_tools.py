from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stark.languages.building import compute_capability, toolkit_environment
from stark.languages.tools import CPP_COMPILER, NINJA, cuda_home, search_path


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def toolkit(home: Path) -> Path:
    program(home / "bin" / "nvcc", "release 13.0")
    (home / "include").mkdir()
    (home / "include" / "cuda_runtime.h").touch()
    return home


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch):
    for name in ("CXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("stark.languages.tools.USUAL_CUDA_HOME", "/nonexistent")


def test_the_compiler_is_the_one_that_builds_will_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CXX", str(program(tmp_path / "clang++", "clang 99")))
    assert "clang 99" == CPP_COMPILER.found()
    monkeypatch.setenv("CXX", f"{program(tmp_path / 'ccache', 'g++ 98')} g++ -m64")
    assert "g++ 98" == CPP_COMPILER.found()
    monkeypatch.setenv("CXX", str(tmp_path / "gone"))
    assert CPP_COMPILER.found() is None


def test_ninja_is_found_beside_the_interpreter_when_path_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("stark.languages.tools.get_path", lambda _: str(tmp_path / "scripts"))
    assert NINJA.found() is None
    program(tmp_path / "scripts" / "ninja", "1.99")
    assert "ninja 1.99" == NINJA.found()
    assert f"{tmp_path}:{tmp_path / 'scripts'}" == search_path()


def test_a_setting_wins_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    on_path, named = toolkit(tmp_path / "path"), toolkit(tmp_path / "named")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert on_path == cuda_home()
    monkeypatch.setenv("CUDA_HOME", str(named))
    assert named == cuda_home()


def test_a_wrapper_script_on_the_path_is_no_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program(tmp_path / "bin" / "nvcc", "wrapped")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert cuda_home() is None
    monkeypatch.setattr("stark.languages.tools.USUAL_CUDA_HOME", str(toolkit(tmp_path / "usual")))
    assert tmp_path / "usual" == cuda_home()
    assert str(tmp_path / "usual") == toolkit_environment(None)["CUDA_HOME"]


@pytest.mark.parametrize(
    ("architecture", "target"),
    [
        ("sm_80", "8.0"),
        ("sm_89", "8.9"),
        ("sm_90", "9.0a"),
        ("sm_90a", "9.0a"),
        ("sm_120", "12.0a"),
        ("sm_100f", "10.0f"),
    ],
)
def test_a_build_targets_exactly_one_architecture(architecture: str, target: str):
    variables = toolkit_environment(architecture)
    assert target == compute_capability(architecture)
    assert target == variables["TVM_FFI_CUDA_ARCH_LIST"] == variables["TORCH_CUDA_ARCH_LIST"]


def test_another_notation_of_an_architecture_is_refused():
    with pytest.raises(ValueError, match="'avx512' is not a GPU architecture such as sm_90"):
        compute_capability("avx512")


def test_looking_for_tools_imports_none_of_them():
    code = (
        "import sys; from stark.languages import LANGUAGES\n"
        "for entry in LANGUAGES.values(): entry.missing(), entry.toolchain()\n"
        "print({'torch', 'triton', 'tvm_ffi'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "set()\n" == done.stdout
