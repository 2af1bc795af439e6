"""The guard's source, to be copied into kernel files and packages, which need no STARK."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.resources import files

FILES = (
    "described", "forms", "contract", "signature", "alike", "source", "shell", "parts", "bound", "guard",
)  # fmt: skip
"""The files of the guard; each imports only earlier ones."""


def guard_file(name: str, package: str = "stark.deploy") -> str:
    """The text of one file. Imports of the others name `package`, such as `.` for relative ones."""
    home = "capturing" if name in ("described", "forms") else "deploy"
    # By `stark`, since the package `stark.capturing` would import torch.
    text = files("stark").joinpath(home, f"{name}.py").read_text(encoding="utf-8")
    if package == "stark.deploy":
        return text
    return re.sub(r"from stark\.(deploy|capturing)\.", f"from {package.removesuffix('.')}.", text)


@cache
def guard_source() -> str:
    """All files as one module."""
    return "".join(_without_imports(guard_file(name), first=name == FILES[0]) for name in FILES)


def _without_imports(text: str, first: bool) -> str:
    """The text without imports of the other files and, except in the first file, of `__future__`."""
    lines = text.splitlines(keepends=True)
    for statement in ast.parse(text).body:
        match statement:
            case ast.ImportFrom(module="__future__") if first:
                continue
            case ast.ImportFrom(module=str(module)) if module.startswith("stark."):
                pass
            case ast.ImportFrom(module="__future__") | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case _:
                continue
        assert statement.end_lineno is not None
        for number in range(statement.lineno - 1, statement.end_lineno):
            lines[number] = ""
    return "".join(lines)
