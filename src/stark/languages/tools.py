"""Finds the compilers and packages that languages need, without importing the packages."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path


@dataclass(frozen=True)
class Tool:
    """A program or package that a language needs."""

    name: str
    found: Callable[[], str | None]
    """Returns the tool's name and version on this machine, or None if the tool is missing."""

    remedy: str
    """How to get the tool, as the end of a sentence."""


def search_path() -> str:
    """PATH, then the folder of this interpreter's scripts.

    A build calls `ninja` by name. If `ninja` is installed in a virtual environment that is not activated, only the
    scripts folder has it.
    """
    return os.pathsep.join(
        part for part in (os.environ.get("PATH", os.defpath), get_path("scripts")) if part
    )


def cuda_home() -> Path | None:
    """The folder of the CUDA toolkit, or None if there is none.

    Tries `$CUDA_HOME`, `$CUDA_PATH`, the folder whose `bin` holds the nvcc on PATH, and `USUAL_CUDA_HOME`, in this
    order. Takes the first folder that contains both nvcc and the headers: the nvcc on PATH may be a wrapper script
    outside the toolkit, and then there are no headers beside it.
    """
    on_path = shutil.which("nvcc")
    places = [
        os.environ.get("CUDA_HOME"),
        os.environ.get("CUDA_PATH"),
        str(Path(on_path).resolve().parent.parent) if on_path else None,
        USUAL_CUDA_HOME,
    ]
    for place in places:
        if place and all((Path(place) / part).is_file() for part in _TOOLKIT_PARTS):
            return Path(place)
    return None


def of_cuda(name: str) -> str | None:
    """The path of one of the CUDA toolkit's programs, or None if that program is neither on PATH nor in a toolkit."""
    homes = [home for home in (cuda_home(), Path(USUAL_CUDA_HOME)) if home is not None]
    places = [os.environ.get("PATH", os.defpath), *(str(home / "bin") for home in homes)]
    return shutil.which(name, path=os.pathsep.join(places))


USUAL_CUDA_HOME = "/usr/local/cuda"
_TOOLKIT_PARTS = ("bin/nvcc", "include/cuda_runtime.h")


def _cpp_version() -> str | None:
    """The version of the compiler that `load_inline` calls: `$CXX` if set, otherwise c++. CXX may include arguments."""
    return _version_line(tuple(shlex.split(os.environ.get("CXX", "c++"))), 0)


def _c_version() -> str | None:
    """The version of the compiler that Triton builds its launchers with: `$CC` if set, otherwise gcc or clang."""
    given = os.environ.get("CC")
    commands = [tuple(shlex.split(given))] if given else [("gcc",), ("clang",)]
    return next(filter(None, (_version_line(command, 0) for command in commands)), None)


def _nvcc_version() -> str | None:
    home = cuda_home()
    return None if home is None else _version_line((str(home / "bin" / "nvcc"),), -1)


def _ninja_version() -> str | None:
    ninja = shutil.which("ninja", path=search_path())
    return None if ninja is None else f"ninja {_version_line((ninja,), 0)}"


@lru_cache
def _version_line(command: tuple[str, ...], line: int) -> str | None:
    """One line of the output of `command --version`, or None if the command fails."""
    try:
        reply = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
        return reply.stdout.strip().splitlines()[line]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def _package(module: str, *distributions: str) -> Callable[[], str | None]:
    """Returns a function that looks for a Python package, given its module and its possible distribution names."""

    def found() -> str | None:
        if find_spec(module) is None:
            return None
        for distribution in distributions:
            try:
                return f"{distribution} {version(distribution)}"
            except PackageNotFoundError:
                continue
        return f"{module} of an unknown version"

    return found


def _gluon() -> str | None:
    """Triton, if its Gluon is the one that the guide teaches; between versions, functions of Gluon change their names."""
    found = TRITON_COMPILER.found()
    return found if re.search(rf" {re.escape(GLUON_OF)}(\.|$)", found or "") else None


GLUON_OF = "3.6"
"""The version of Triton for which the guide to Gluon was written."""

CPP_COMPILER = Tool(
    "a C++ compiler", _cpp_version, "install g++ (`apt install g++`) or set CXX to another compiler"
)
C_COMPILER = Tool(
    "a C compiler", _c_version, "install gcc (`apt install gcc`) or set CC to another compiler"
)
NVCC = Tool(
    "the CUDA compiler nvcc",
    _nvcc_version,
    "install the CUDA toolkit, or set CUDA_HOME to the folder that holds bin/nvcc",
)
NINJA = Tool("ninja", _ninja_version, "install it with `pip install ninja`")
TVM_FFI = Tool(
    "apache-tvm-ffi",
    _package("tvm_ffi", "apache-tvm-ffi"),
    "install it with `pip install apache-tvm-ffi`",
)
TRITON_COMPILER = Tool(
    "Triton",
    _package("triton", "triton", "pytorch-triton"),
    "install it with `pip install triton`",
)
GLUON_COMPILER = Tool(
    f"Triton {GLUON_OF}, whose Gluon the guide teaches",
    _gluon,
    f"install it with `pip install triton=={GLUON_OF}.*`",
)
CUTE_DSL = Tool(
    "CuTe DSL",
    _package("cutlass", "nvidia-cutlass-dsl"),
    "install it with `pip install nvidia-cutlass-dsl[cu13]`",
)
TORCH = Tool(
    "PyTorch", _package("torch", "torch"), "install it as https://pytorch.org/get-started describes"
)
