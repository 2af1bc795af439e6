"""Puts a captured problem together as one file: imports, definitions, classes, inputs, and the constants of a problem."""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pprint import pformat
from typing import Any

from torch import nn

from stark.capturing.calls.cases import Binding, Case
from stark.capturing.described import kind_of
from stark.capturing.expressions.drawing import draw_value
from stark.capturing.expressions.stored import UNPACKED

WIDTH = 100
"""Characters of a line in the docstring and in the constants; lines of code are as long as they are."""


@dataclass(frozen=True)
class Captured:
    """The code of one module, without its inputs."""

    definitions: dict[str, str]
    """Functions, classes and constants by name, each after those that it needs."""

    classes: dict[str, str]
    """Classes of modules by name; `Model` is the last."""

    imports: dict[str, str]
    notes: Sequence[str] = ()
    """Sentences for the file's docstring."""

    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    """Digests of functions and methods, and values of global constants, by `package.module:name`."""

    packages: set[str] = field(default_factory=set)
    """Packages that the code was copied from."""


def write(
    module: nn.Module,
    captured: Captured,
    binding: Binding,
    cases: Sequence[Case],
    constants: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> str:
    """The text of the problem file. Raises CannotCapture if an input cannot be drawn or stored.

    `constants` are OBJECTIVE and BACKWARD, if they are to be written.
    """
    inputs = _inputs(binding, cases)
    parts = [*_used(captured, inputs), inputs, "def get_init_inputs():\n    return []"]
    declared = dict(constants)
    if len(cases) > 1:
        declared = {"CASES": {case.name: case.weight for case in cases}, **declared}
    declared["ORIGINAL"] = _original(module, captured, binding)
    names = "\n".join(_declaration(name, value) for name, value in declared.items())
    body = "\n\n\n".join(parts)
    imports = _imports(captured.imports, body)
    return (
        f"{_docstring(module, [*captured.notes, *notes])}\n\n{imports}\n\n\n{body}\n\n\n{names}\n"
    )


def _declaration(name: str, value: object) -> str:
    begin = f"{name} = "
    lines = pformat(value, width=WIDTH - len(begin), sort_dicts=False).splitlines()
    return begin + f"\n{' ' * len(begin)}".join(lines)


def _docstring(module: nn.Module, notes: Sequence[str]) -> str:
    first = f"Captured from {kind_of(module).replace(':', '.')}."
    safe = " ".join([first, *notes]).replace("\\", "\\\\").replace('"""', "'''")
    text = textwrap.fill(safe, WIDTH)
    if text.endswith('"'):
        text += "\n"
    return f'"""{text}"""' if "\n" not in text else f'"""{text}\n"""'


def _used(captured: Captured, inputs: str) -> list[str]:
    """The definitions and classes that Model and its inputs need, directly or not."""
    texts = {"unpacked": UNPACKED, **captured.definitions, **captured.classes}
    needed: set[str] = set()
    waiting = [captured.classes["Model"], inputs]
    while waiting:
        found = _names(waiting.pop()) & set(texts) - needed
        needed |= found
        waiting += [texts[name] for name in found]
    return [text for name, text in texts.items() if name in needed or name == "Model"]


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _imports(imports: Mapping[str, str], body: str) -> str:
    """The statements that the body needs, the standard library first."""
    used = _names(body)
    lines = {text for name, text in imports.items() if name in used} | {
        "import torch",
        "import torch.nn as nn",
    }
    if "unpacked" in used:
        lines |= {"import base64", "import zlib"}
    groups: dict[bool, list[str]] = {True: [], False: []}
    for line in sorted(lines, key=lambda line: (line.startswith("from"), line)):
        groups[line.split()[1].partition(".")[0] in sys.stdlib_module_names].append(line)
    return "\n\n".join("\n".join(group) for group in groups.values() if group)


def _inputs(binding: Binding, cases: Sequence[Case]) -> str:
    """The function `get_inputs`, with a parameter if there are several cases."""
    if len(cases) == 1:
        return f"def get_inputs():\n    return {_list(binding, cases[0], 4)}"
    lines = [f"def get_inputs(case={cases[0].name!r}):"]
    for case in cases:
        lines.append(f"    if case == {case.name!r}:\n        return {_list(binding, case, 8)}")
    lines.append('    raise ValueError(f"there is no case {case!r}")')
    return "\n".join(lines)


def _list(binding: Binding, case: Case, indent: int) -> str:
    assert case.form.example is not None
    values = binding.values(case.form.example)
    pad = " " * indent
    lines = "".join(f"{pad}    {draw_value(value)},\n" for value in values)
    return f"[\n{lines}{pad}]"


def _original(module: nn.Module, captured: Captured, binding: Binding) -> dict[str, Any]:
    """The constant ORIGINAL (`stark.core.declared.Original`)."""
    found = {"torch": version("torch")}
    for package in sorted(captured.packages - {"torch", "__main__"}):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            known = getattr(sys.modules.get(package), "__version__", None)
            if isinstance(known, str):
                found[package] = known
    return {
        "name": kind_of(module),
        "arguments": list(binding.arguments),
        "constants": {name: repr(value) for name, value in binding.constants.items()},
        "training": module.training,
        "attributes": captured.attributes,
        "code": captured.code,
        "versions": found,
    }
