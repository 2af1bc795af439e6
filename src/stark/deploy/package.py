"""Writes a kernel as a Python package that needs neither STARK nor the user's package.

The layout is that of Hugging Face's `kernels`, and `pip install` works on the same folder:

    pyproject.toml, README.md
    build/<variant>/metadata.json
    build/<variant>/<name>/   __init__.py, kernel.py, original.py, layers.py, build_tools.py, the guard,
                              certificate.json

Kernels in C++ and CUDA compile when the package is imported; there are no prebuilt objects.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from stark.core.candidate import Candidate
from stark.core.errors import UsageError
from stark.core.problem import Problem
from stark.deploy.certificate import CERTIFICATE, Certificate, digests
from stark.deploy.embedded import FILES, guard_file

VARIANTS = {
    "cpp": "torch-cpu",
    **dict.fromkeys(("triton", "cuda", "gluon", "cutedsl"), "torch-cuda"),
}
"""The build variant of each language; kernels in PyTorch alone are `torch-universal`."""

COMPILED = {"cpp": "c++", "cuda": "nvcc"}
"""The compiler of each language that is built when the package is imported. Builds also need ninja."""

REQUIREMENTS = {
    "tvm_ffi": "apache-tvm-ffi",
    "triton": "triton",
    "cutlass": "nvidia-cutlass-dsl",
    "cupy": "cupy",
    "numpy": "numpy",
    "ninja": "ninja",
}
"""Distributions of what kernels import beside torch."""


@dataclass(frozen=True)
class Contents:
    """What a package is made of."""

    problem: Problem
    candidate: Candidate
    certificate: Certificate
    """Without files."""

    facts: Sequence[tuple[str, str]]
    """What was verified and measured, each with its name."""


def write_package(folder: Path, contents: Contents) -> Path:
    """Write a package named as the folder, which must be new or empty. Raises UsageError."""
    name = re.sub(r"\W", "_", folder.absolute().name)
    if not _can_be_imported(name):
        raise UsageError(f"{folder.name} cannot name a package; choose a name such as my_kernel")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty; name a new folder")
        _write(folder, name, contents)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from error
    return folder


def _can_be_imported(name: str) -> bool:
    """Whether pip accepts the name, it is no keyword, and the package would hide nothing that it needs itself."""
    taken = {"torch", "stark", *REQUIREMENTS, *sys.stdlib_module_names}
    valid = re.fullmatch(r"[A-Za-z](\w*[A-Za-z0-9])?", name, re.ASCII)
    return valid is not None and not keyword.iskeyword(name) and name not in taken


def _write(folder: Path, name: str, contents: Contents) -> None:
    variant = VARIANTS.get(contents.candidate.language, "torch-universal")
    package = folder / "build" / variant / name
    package.mkdir(parents=True)
    values = _values(name, variant, contents)
    for file, text in _modules(contents, values).items():
        (package / file).write_text(text, "utf-8")
    inside = list(package.iterdir())
    (package.parent / "metadata.json").write_text(_metadata(name, contents), "utf-8")
    for template, file in (("pyproject", "pyproject.toml"), ("readme", "README.md")):
        (folder / file).write_text(_template(template, values), "utf-8")
    others = [path for path in folder.rglob("*") if path.is_file() and path not in inside]
    certified = contents.certificate.model_copy(
        update={"files": digests(package, inside), "around": digests(folder, others)}
    )
    (package / CERTIFICATE).write_text(certified.model_dump_json(indent=1) + "\n", "utf-8")


def _modules(contents: Contents, values: dict[str, str]) -> dict[str, str]:
    """The files of the package itself."""
    guards = {f"{name}.py": guard_file(name, package=".") for name in FILES}
    return guards | {
        "kernel.py": contents.candidate.source,
        "original.py": contents.problem.source,
        "__init__.py": _template("init", values),
        "layers.py": _template("layers", values),
        "build_tools.py": _template("build_tools", values),
    }


def _values(name: str, variant: str, contents: Contents) -> dict[str, str]:
    """What the templates contain."""
    certificate = contents.certificate
    original = certificate.original.name if certificate.original else ""
    facts = "\n".join(
        f"{'  ' if title.startswith('- ') else '- '}{title}: {text}"  # cases are items of an inner list
        for title, text in contents.facts
    )
    needs = [
        REQUIREMENTS[module]
        for module in REQUIREMENTS
        if re.search(rf"^\s*(import|from) {module}\b", contents.candidate.source, re.MULTILINE)
    ]
    builds = contents.candidate.language in COMPILED
    needs += ["ninja"] if builds and "ninja" not in needs else []
    return {
        "name": name,
        "compiler": COMPILED.get(contents.candidate.language, ""),
        "variant": variant,
        "kernel": certificate.name,
        "device": certificate.device.kind,
        "architecture": certificate.device.architecture,
        "original": original,
        "layer": original.rpartition(".")[2].rpartition(":")[2] or "Kernel",
        "backward": str(certificate.backward),
        "facts": facts,
        "needs": ", ".join(f'"{each}"' for each in ("torch", *needs)),
        "where": f"`{original}`" if original else "modules that you name",
        "names": "" if original else ', ["path.of.a.module"]',
    }


def _metadata(name: str, contents: Contents) -> str:
    """What Hugging Face's `kernels` reads first."""
    device = contents.certificate.device
    backend: dict[str, object] = {"type": device.kind}
    if device.kind == "cuda":
        backend["archs"] = [device.architecture.removeprefix("sm_")]
    document = {
        "id": f"_{name}_{contents.certificate.name}",
        "name": name.replace("_", "-"),
        "version": 1,
        "license": "unknown",
        "python-depends": [],
        "backend": backend,
    }
    return json.dumps(document, indent=1) + "\n"


def _template(name: str, values: dict[str, str]) -> str:
    text = files("stark.deploy").joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")
    return Template(text).substitute(values)
