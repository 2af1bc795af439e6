"""Which file or folder a problem's name means, on disk or in a KernelBench checkout.

Knows names and folders, and never opens a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from stark.core.errors import ProblemError

CLONE = "git clone https://github.com/ScalingIntelligence/KernelBench"


def locate(spec: str, kernelbench: Path | None) -> Path:
    """The file or folder that `spec` names; a path on disk wins over a KernelBench name."""
    with _looking_for(spec):
        path = Path(spec).expanduser()
        if path.exists():
            return path
    if match := re.fullmatch(r"level(\d+)(?:/(.+))?", spec.rstrip("/")):
        folder = level_folder(f"level{match[1]}", kernelbench)
        return in_level(folder, match[2]) if match[2] else folder
    raise ProblemError(_not_found(path))


def name_of(path: Path) -> str:
    """What people call the problem in this file: `level1/23_Softmax` in KernelBench, else the stem."""
    level = path.resolve().parent.name
    from_kernelbench = re.fullmatch(r"level\d+", level) and re.match(r"\d+_", path.name)
    return f"{level}/{path.stem}" if from_kernelbench else path.stem


def python_files(folder: Path) -> list[Path]:
    """The folder's own Python files, numbered ones in the order of their numbers."""
    files = (path for path in folder.glob("*.py") if path.is_file())
    return sorted(files, key=lambda path: (_number(path.name), path.name))


def folders_with_python_files(folder: Path) -> list[Path]:
    """The folders directly inside that hold Python files themselves."""
    return sorted(inner for inner in folder.iterdir() if inner.is_dir() and python_files(inner))


def _number(name: str) -> int:
    """The number that a KernelBench file name begins with, or 0."""
    digits = re.match(r"\d+", name)
    return int(digits[0]) if digits else 0


def level_folder(level: str, kernelbench: Path | None) -> Path:
    """Where a level lies in a checkout. Raises ProblemError."""
    if kernelbench is None:
        raise ProblemError(
            f"{level} is a level of KernelBench; set `kernelbench` to the folder of a checkout, or make one with `{CLONE}`."
        )
    with _looking_for(str(kernelbench)):
        root = kernelbench.expanduser()
        if not root.is_dir():
            raise ProblemError(
                f"There is no KernelBench checkout at {root}; make one with `{CLONE}`."
            )
        for folder in (root / level, root / "KernelBench" / level):
            if folder.is_dir():
                return folder
    raise ProblemError(f"The KernelBench checkout at {root} has no folder {level}.")


def in_level(folder: Path, name: str) -> Path:
    """A level's problem by its number or name. Raises ProblemError."""
    files = python_files(folder)
    for path in files:
        if name in (path.name, path.stem) or (name.isdigit() and int(name) == _number(path.name)):
            return path
    hint = _close_names(name, [path.stem for path in files])
    if name.isdigit() and files:
        hint = f"; it has {_number(files[0].name)} to {_number(files[-1].name)}"
    raise ProblemError(f"KernelBench's {folder.name} has no problem {name}{hint}.")


@contextmanager
def _looking_for(what: str) -> Iterator[None]:
    """Raises ProblemError where there is no right to look, a name is too long, or `~` names no user."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise ProblemError(f"{what} cannot be looked for: {error}") from error


def _not_found(path: Path) -> str:
    if not path.parent.is_dir():
        return f"There is no folder {path.parent}, so no problem {path}."
    if not os.access(path.parent, os.R_OK):
        return f"There is no file {path}."
    nearby = [inner.name for inner in path.parent.iterdir() if not inner.name.startswith(".")]
    return f"There is no file {path}{_close_names(path.name, nearby)}."


def _close_names(name: str, names: list[str]) -> str:
    """A clause with the names that this may be a misspelling of, or nothing."""
    close = get_close_matches(name, names, n=3)
    return f"; there is {', '.join(close)}" if close else ""
