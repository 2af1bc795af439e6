"""From what a person typed to checked problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stark.core.errors import ProblemError
from stark.core.problem import Problem
from stark.problems.form import defines_any_part, form_fault
from stark.problems.locate import (
    folders_with_python_files,
    in_level,
    level_folder,
    locate,
    name_of,
    python_files,
)


def load(spec: str, kernelbench: Path | None = None) -> Problem:
    """The one problem that `spec` names: a file, or `level1/23` in a KernelBench checkout.

    Raises ProblemError, with the line where there is one, for anything that cannot be used.
    """
    path = locate(spec, kernelbench)
    if path.is_dir():
        names = _first_names(python_files(path))
        raise ProblemError(
            f"{spec} is a folder and one problem is wanted; name one of its files{names}."
        )
    return _checked(path, _read(path))


def load_all(spec: str, kernelbench: Path | None = None) -> list[Problem]:
    """Every problem that `spec` names: one file, all problem files of a folder, or a KernelBench level.

    A Python file in a folder that defines no part of a problem is passed over; one that
    defines a part is a problem and must be a whole one.
    """
    path = locate(spec, kernelbench)
    if not path.is_dir():
        return [_checked(path, _read(path))]
    sources = {file: _read(file) for file in python_files(path)}
    problems = [
        _checked(file, source) for file, source in sources.items() if defines_any_part(source)
    ]
    if not problems:
        names = _first_names(folders_with_python_files(path))
        raise ProblemError(
            f"{spec} holds no problem file; name a folder of files that define Model, "
            f"get_inputs and get_init_inputs{names}."
        )
    return problems


def load_level(
    level: str, kernelbench: Path | None, numbers: Sequence[int] | None = None
) -> list[Problem]:
    """The problems of a KernelBench level, such as `level1`, or those of these numbers; from a checkout, whatever else has that name."""
    folder = level_folder(level, kernelbench)
    if numbers is None:
        return load_all(str(folder))
    return [load(str(in_level(folder, str(number)))) for number in numbers]


def _checked(path: Path, source: str) -> Problem:
    fault = form_fault(source)
    if fault is not None:
        raise ProblemError(f"{path}, {fault}")
    return Problem(name=name_of(path), source=source)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8."
        ) from error
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error.strerror}.") from error


def _first_names(paths: list[Path]) -> str:
    """A clause with the first few names, or nothing."""
    return f", such as {', '.join(path.name for path in paths[:3])}" if paths else ""
