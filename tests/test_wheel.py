"""The wheel works on its own: installed elsewhere, without the repository."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import stark

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "stark"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the build backend that is installed, or with one that pip can get."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = (
        folder / "checkout"
    )  # what is built is a copy, so that nothing is written into the repository
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(
        SOURCE, checkout / "src" / "stark", ignore=shutil.ignore_patterns("__pycache__")
    )
    isolated = [] if importlib.util.find_spec("hatchling") is None else ["--no-build-isolation"]
    build = (
        "wheel",
        "--no-deps",
        "--quiet",
        "--retries=0",
        *isolated,
        "--wheel-dir",
        folder,
        checkout,
    )
    built = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, build)], capture_output=True, text=True, timeout=300
    )
    if built.returncode and not isolated:
        pytest.skip("hatchling is not installed, and pip cannot get it")
    assert 0 == built.returncode, built.stderr
    [found] = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package alone."""
    target = tmp_path_factory.mktemp("target")
    install = ("install", "--no-deps", "--no-index", "--quiet", "--target", target, wheel)
    subprocess.run([sys.executable, "-m", "pip", *map(str, install)], check=True, timeout=300)
    return target


def run(target: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the installed package; a checkout that the environment links to is not found."""
    environment = {name: value for name, value in os.environ.items() if "STARK" not in name}
    paths = (str(target), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return subprocess.run(
        # Without `site`, links to checkouts in the site-packages are not followed.
        [sys.executable, "-S", *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    files = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"}

    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("stark/")}

    assert {f"stark/{path.relative_to(SOURCE).as_posix()}" for path in files} == packed
    assert packed >= {
        "stark/py.typed",
        "stark/demo/cpp.json.gz",
        "stark/demo/triton.json.gz",
        "stark/report/kernel_main.txt",
        "stark/page/static/app.js",
        "stark/agents/prompts/plan.md",
        "stark/languages/cpp.md",
        "stark/languages/techniques/cpp/simd.md",
    }


def test_the_installed_package_is_the_one_that_runs(installed: Path, tmp_path: Path) -> None:
    ended = run(installed, tmp_path, "-c", "import stark; print(stark.__file__, stark.__version__)")

    assert f"{installed / 'stark' / '__init__.py'} {stark.__version__}" == ended.stdout.strip()


def test_the_demo_finds_its_recordings(installed: Path, tmp_path: Path) -> None:
    explained = run(installed, tmp_path, "-m", "stark", "demo", "--help")
    reading = (
        "import stark\nfrom importlib.resources import as_file, files\n"
        "for language in ('cpp', 'triton'):\n"
        "    with as_file(files('stark').joinpath('demo', f'{language}.json.gz')) as path:\n"
        "        print(stark.load_run(path).kernel)\n"
    )
    read = run(installed, tmp_path, "-c", reading)

    assert 0 == explained.returncode, explained.stderr
    assert "recorded replies" in explained.stdout
    assert ["cpp", "triton"] == [line.split(", ")[1] for line in read.stdout.splitlines()], (
        read.stderr
    )


def test_the_doctor_examines_the_machine(installed: Path, tmp_path: Path) -> None:
    ended = run(installed, tmp_path, "-m", "stark", "doctor", "--json")

    assert ended.returncode in (0, 1, 2), ended.stderr
    assert json.loads(ended.stdout), ended.stderr
    assert [] == list(tmp_path.iterdir()), "an examination leaves nothing behind"
