"""Finds problem files by path or KernelBench name, reads them and checks their form."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from stark.core.declared import declared
from stark.core.errors import ProblemError
from stark.core.problem import Problem
from stark.core.python import bindings, parse_python
from stark.problems.definition_text import problem_text
from stark.problems.definitions import is_definition, read

CLONE = "git clone https://github.com/ScalingIntelligence/KernelBench"

DEFINITION = "definition.json"
"""A definition's file in a folder of its own, as in SOL-ExecBench."""

WHAT_TO_ADD = {
    "Model": "a class `Model(nn.Module)` whose `forward` is the computation",
    "get_inputs": "a function `get_inputs()` that returns the list of forward's arguments",
    "get_init_inputs": "a function `get_init_inputs()` that returns the list of Model's arguments (`[]` for none)",
}


@contextmanager
def _accessing_files() -> Iterator[None]:
    """Raise ProblemError if access is denied, a name is too long, or `~` names an unknown user."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise ProblemError(f"The problem cannot be accessed: {error}") from error


@_accessing_files()
def load(spec: str, kernelbench: Path | None = None) -> Problem:
    """Load one problem: a file, `level1/23` in a KernelBench checkout, or a definition with workloads (`definitions`).

    Raises ProblemError; its message names the line if the fault is in one line.
    """
    path = _locate(spec, kernelbench)
    if path.is_dir() and is_definition(path / DEFINITION):
        path /= DEFINITION
    if path.is_dir():
        names = _first_names(_python_files(path))
        raise ProblemError(f"{spec} is a folder, not a problem; name one of its files{names}.")
    return _checked(path)


@_accessing_files()
def load_all(spec: str, kernelbench: Path | None = None) -> list[Problem]:
    """Load every problem that `spec` names: one file, all files of a folder, or a KernelBench level.

    Definitions in a folder count, and those in folders of their own. Skips Python files that define no part of a problem.
    Raises ProblemError for a file with only some of the parts.
    """
    path = _locate(spec, kernelbench)
    if not path.is_dir():
        return [_checked(path)]
    files = [file for file in _python_files(path) if defines_any_part(_read(file))]
    files += filter(is_definition, sorted([*path.glob("*.json"), *path.glob(f"*/{DEFINITION}")]))
    problems = [_checked(file) for file in files]
    if not problems:
        folders = [inner for inner in path.iterdir() if inner.is_dir() and _python_files(inner)]
        raise ProblemError(
            f"{spec} contains no problem file; name a folder of files that define Model, "
            f"get_inputs and get_init_inputs{_first_names(sorted(folders))}."
        )
    return problems


@_accessing_files()
def load_level(
    level: str, kernelbench: Path | None, numbers: Sequence[int] | None = None
) -> list[Problem]:
    """Load a level of a KernelBench checkout, such as `level1`; `numbers` selects problems by number."""
    folder = _level_folder(level, kernelbench)
    if numbers is None:
        return load_all(str(folder))
    return [load(str(_in_level(folder, str(number)))) for number in numbers]


def form_fault(source: str) -> str | None:
    """Why this source is not a problem, as one sentence; None if it is a problem.

    Only the syntax and the presence of the parts are checked. The judge finds out whether the parts work together.
    """
    try:
        tree = parse_python(source)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {error.msg}."
    parts = dict(bindings(tree))
    for name, what in WHAT_TO_ADD.items():
        if name not in parts:
            return f"line {len(source.splitlines()) or 1}: {name} is missing; add {what}."
    try:
        cases = declared(source).cases
    except ValueError as error:
        return f"{error}."
    return _cases_fault(parts["get_inputs"], list(cases)) if cases else None


def _cases_fault(get_inputs: ast.AST, cases: list[str]) -> str | None:
    """Why `get_inputs` cannot draw these cases, as one sentence; None if it takes a case's name."""
    line = getattr(get_inputs, "lineno", 1)
    write = f"write `def get_inputs(case={cases[0]!r}):`"
    if not isinstance(get_inputs, ast.FunctionDef):
        return f"line {line}: get_inputs is not defined by `def`, but a file with CASES needs that; {write}."
    given = get_inputs.args
    taken = [*given.posonlyargs, *given.args]
    if len(taken) != 1 or given.kwonlyargs:
        return f"line {line}: get_inputs must take the name of a case and nothing else, since the file has CASES; {write}."
    match given.defaults:
        case []:
            return f"line {line}: get_inputs has no default, which is the first of CASES; {write}."
        case [ast.Constant(value=value)] if value != cases[0]:
            return f"line {line}: get_inputs has the default {value!r}, not the first of CASES; {write}."
    return None


def defines_any_part(source: str) -> bool:
    """Whether the source is meant as a problem: it defines a part of a problem, or cannot be parsed."""
    try:
        tree = parse_python(source)
    except SyntaxError:
        return True
    return any(name in WHAT_TO_ADD for name, _ in bindings(tree))


def _locate(spec: str, kernelbench: Path | None) -> Path:
    """The file or folder that `spec` names. An existing path takes precedence over a KernelBench name."""
    path = Path(spec).expanduser()
    if path.exists():
        return path
    if match := re.fullmatch(r"level(\d+)(?:/(.+))?", spec.rstrip("/")):
        folder = _level_folder(f"level{match[1]}", kernelbench)
        return _in_level(folder, match[2]) if match[2] else folder
    if not path.parent.is_dir():
        raise ProblemError(f"There is no folder {path.parent}, so no problem {path}.")
    names = [file.name for file in path.parent.iterdir() if not file.name.startswith(".")]
    raise ProblemError(f"There is no file {path}{_close_names(path.name, names)}.")


def _level_folder(level: str, kernelbench: Path | None) -> Path:
    """The folder of a level in a checkout."""
    if kernelbench is None:
        raise ProblemError(
            f"{level} is a level of KernelBench; get a checkout by `{CLONE}` and give its folder as `kernelbench`."
        )
    root = kernelbench.expanduser()
    if not root.is_dir():
        raise ProblemError(f"There is no KernelBench checkout at {root}; make one with `{CLONE}`.")
    for folder in (root / level, root / "KernelBench" / level):
        if folder.is_dir():
            return folder
    raise ProblemError(f"The KernelBench checkout at {root} has no folder {level}.")


def _in_level(folder: Path, name: str) -> Path:
    """The problem file that has this number or file name, in a level's folder."""
    files = _python_files(folder)
    for path in files:
        if name in (path.name, path.stem) or (name.isdigit() and int(name) == _number(path)):
            return path
    hint = _close_names(name, [path.stem for path in files])
    if name.isdigit() and files:
        hint = f"; it has {_number(files[0])} to {_number(files[-1])}"
    raise ProblemError(f"KernelBench's {folder.name} has no problem {name}{hint}.")


def _python_files(folder: Path) -> list[Path]:
    """The Python files directly in a folder, sorted by number, then by name."""
    files = (path for path in folder.glob("*.py") if path.is_file())
    return sorted(files, key=lambda path: (_number(path), path.name))


def _number(path: Path) -> int:
    """The number at the start of a KernelBench file name, or 0."""
    digits = re.match(r"\d+", path.name)
    return int(digits[0]) if digits else 0


def _checked(path: Path) -> Problem:
    """The problem in this file, named after the file; a KernelBench file's level comes first: `level1/23_Softmax`."""
    if is_definition(path):
        chosen = read(path)
        name, source = chosen.definition.name, problem_text(chosen)
    else:
        name, source = path.stem, _read(path)
    fault = form_fault(source)
    if fault is not None:
        raise ProblemError(f"{path}, {fault}")
    level = path.resolve().parent.name
    from_kernelbench = re.fullmatch(r"level\d+", level) and re.match(r"\d+_", path.name)
    return Problem(name=f"{level}/{name}" if from_kernelbench else name, source=source)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8."
        ) from error


def _first_names(paths: list[Path]) -> str:
    """A clause with the first three names, or nothing."""
    return f", such as {', '.join(path.name for path in paths[:3])}" if paths else ""


def _close_names(name: str, names: list[str]) -> str:
    """A clause with the names that `name` may be a misspelling of, or nothing."""
    close = get_close_matches(name, names, n=3)
    return f"; there is {', '.join(close)}" if close else ""
