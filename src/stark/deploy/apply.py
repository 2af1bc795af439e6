"""`stark.apply`: puts a kernel into a live model."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from torch import nn

from stark.core.base import digest
from stark.core.errors import UsageError
from stark.deploy import guard
from stark.deploy.certificate import changed_files, package_folder, read_certificate
from stark.deploy.package import COMPILED
from stark.languages import language
from stark.languages.tools import search_path

if TYPE_CHECKING:
    from stark.results import Kernel

Applied = guard.Applied

_FOLDER: list[tempfile.TemporaryDirectory[str]] = []
"""Where kernels that are in no file are written, so that Triton and debuggers can read their source."""


def apply(
    model: nn.Module, kernel: Kernel | str | Path | None, names: Sequence[str] | None = None
) -> Applied:
    """Put a kernel into a live model. It runs for the calls that it was verified for, the original for all others.

    ```python
    applied = stark.apply(model, result.kernel)
    print(applied.report())
    ```

    Args:
        model: The model, or the module itself. Its parameters, buffers, submodules and state_dict stay as they are.
        kernel: A `stark.Kernel`, the path of a kernel file, or the folder of an exported package. Its code is imported,
            which compiles it. None, as a run without a correct attempt has, is an error.
        names: Paths of the modules to bind, such as `layers.0.mlp` or `layers.*.mlp`; `""` is the model itself. By
            default, all instances of the class that the problem was captured from.

    Returns:
        `report()` lists bound and skipped modules and counts calls with reasons; `remove()` restores the model. The
        object is also a context manager.

    Raises:
        UsageError: The kernel has not passed the final check, cannot be imported, or fits no module; the message says why.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"a kernel is put into an instance of nn.Module, not into {_what(model)}")
    try:
        return guard.apply(model, _load(kernel), names)
    except guard.NothingBound as error:
        raise UsageError(f"the kernel fits no module: {error}") from error


def _what(model: object) -> str:
    return f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"


def _load(kernel: Kernel | str | Path | None) -> guard.Kernel:
    """The kernel with its reference. Raises UsageError."""
    if kernel is None:
        raise UsageError("there is no kernel: no attempt of the run was correct; search on")
    if not isinstance(kernel, str | Path):
        if not kernel.confirmed:
            raise UsageError(
                f"attempt {kernel.attempt} has not passed the final check: resume its run, or save the kernel, read it and "
                "apply the file"
            )
        return _of_file(_written(kernel.file))
    path = Path(kernel)
    if path.is_dir():
        return _of_package(package_folder(path))
    if not path.is_file():
        raise UsageError(f"there is no kernel file and no package at {path}")
    return _of_file(path)


def _written(text: str) -> Path:
    if not _FOLDER:
        _FOLDER.append(tempfile.TemporaryDirectory(prefix="stark-applied-"))
    path = Path(_FOLDER[0].name) / f"kernel_{digest(text)}.py"
    path.write_text(text, "utf-8")
    return path


def _of_file(path: Path) -> guard.Kernel:
    module = _imported(path)
    written = getattr(module, "_STARK", None)
    if written is None or not hasattr(written, "FACTS"):
        raise UsageError(
            f"{path} has no guard: it was not written by this version of STARK; save the kernel of its run again"
        )
    return guard.Kernel(module.ModelNew, written.REFERENCE, **written.FACTS)


def _of_package(folder: Path) -> guard.Kernel:
    claimed = read_certificate(folder)
    for fault in changed_files(folder, claimed):
        raise UsageError(f"{folder}: {fault}; export the kernel again")
    return guard.Kernel(
        _imported(folder / "kernel.py").ModelNew,
        (folder / "original.py").read_text("utf-8"),
        name=claimed.name,
        device=claimed.device.kind,
        architecture=claimed.device.architecture,
    )


def _imported(path: Path) -> ModuleType:
    """The module in a file, imported once."""
    name = f"stark_applied_{digest(str(path.absolute()), path.read_text('utf-8'))}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UsageError(f"{path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with _ninja_beside_python():
                spec.loader.exec_module(module)
        except Exception as error:  # the kernel's code may raise anything
            del sys.modules[name]
            reason = _lacking(path) or f"{type(error).__name__}: {error}"
            raise UsageError(f"{path} cannot be imported here: {reason}") from error
    return sys.modules[name]


@contextmanager
def _ninja_beside_python() -> Iterator[None]:
    """Builds find the ninja of a virtual environment that is not activated, as in the judge."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = search_path()
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _lacking(path: Path) -> str | None:
    """The tool that this machine lacks to build the kernel, as a sentence; None if it lacks none."""
    source = path.read_text("utf-8")
    built = (language(name) for name in COMPILED)
    return next((each.missing() for each in built if each.check(source) is None), None)
