"""What a kernel language is: how a candidate in it looks, is checked and is built.

Knows no device and runs no candidate. Whether a candidate computes the right thing is the
judge's question; here it is only whether the text can be a candidate of the language at all.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from stark.core.candidate import Candidate
from stark.core.problem import Problem
from stark.core.python import bindings, parse_python
from stark.core.reference import Reference
from stark.languages.guide import fenced, section
from stark.languages.lessons import Lessons
from stark.languages.technique import Technique, choose
from stark.languages.tools import Tool
from stark.languages.work import work_of

DeviceKind = Literal["cpu", "cuda"]


class Example(NamedTuple):
    """The worked example of a guide."""

    problem: Problem
    candidate: Candidate


@dataclass(frozen=True)
class Language:
    """One kernel language. Its guide is the file `<name>.md` beside this one."""

    name: str
    title: str
    """What people and models are told, such as `Triton`."""

    device_kinds: tuple[DeviceKind, ...]
    preload: tuple[str, ...]
    """Modules that the judge may import ahead, in the process that candidates are forked from.

    That process needs the variables of `environment` before it imports them.
    """

    tools: tuple[Tool, ...]
    """What the machine that builds and runs candidates needs."""

    rule: Callable[[ast.Module], str | None]
    """Why a parsed file that defines `ModelNew` is still no candidate of this language."""

    environment: Callable[[Path, str | None], dict[str, str]]
    """Variables for the processes that build and run a candidate, from a folder and an architecture.

    All builds and caches go into the folder, and target the architecture (`sm_90`) without a
    device being present; None leaves it to be found out from the device.
    """

    techniques: tuple[Technique, ...] = ()
    """What is taught beside the guide where it pays, in the order in which it is considered."""

    has_compiler: bool = False
    """Whether PyTorch's own compiler writes in it."""

    @property
    def guide(self) -> str:
        """What a model is always taught about the language: the form, one worked example, the traps."""
        return files("stark.languages").joinpath(f"{self.name}.md").read_text(encoding="utf-8")

    @property
    def form(self) -> str:
        """The guide's rules for every candidate: what a plan must not ask to break."""
        return section(self.guide, "The form")

    def lessons(self, reference: Reference) -> Lessons:
        """What the roles are taught for this problem: the guide, and the techniques that pay for it."""
        chosen = choose(self.techniques, work_of(reference)) if self.techniques else ()
        return Lessons(self.form, self.guide, chosen)

    @property
    def example(self) -> Example:
        """The guide's worked example: a small problem and a candidate for it."""
        (problem,) = fenced(self.guide, "python problem")
        (candidate,) = fenced(self.guide, "python")
        return Example(
            Problem(name="bias_relu_normalize", source=problem),
            Candidate(language=self.name, source=candidate),
        )

    def check(self, source: str) -> str | None:
        """Why this text is no candidate of the language, in one sentence, or None if it may be one."""
        try:
            tree = parse_python(source)
        except SyntaxError as error:
            where = "" if error.lineno is None else f"line {error.lineno}: "
            return f"The file does not parse: {where}{error.msg}."
        if "ModelNew" not in dict(bindings(tree)):
            return "The file does not define a class ModelNew at its top level."
        return self.rule(tree)

    def toolchain(self) -> str:
        """The tools and versions that a build depends on: part of the key under which it is kept."""
        return "; ".join(tool.found() or f"without {tool.name}" for tool in self.tools)

    def missing(self) -> str | None:
        """The first thing that this machine lacks for the language, and how to mend it, or None."""
        lacking = (tool for tool in self.tools if tool.found() is None)
        return next((f"This machine lacks {tool.name}; {tool.remedy}." for tool in lacking), None)
