"""Defines a kernel language: the form of its candidates, how they are checked and built, and what models are taught.

The check looks at the text only. The judge decides whether a candidate is correct.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from stark.core.python import bindings, parse_python
from stark.core.reference import Reference
from stark.languages.technique import Technique, choose, section
from stark.languages.tools import Tool
from stark.languages.work import work_of

DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Lessons:
    """What models are taught for one problem on one device: ideas for plans, everything for code, traps for repairs."""

    form: str
    """The guide's rules for every candidate."""

    guide: str
    """The whole guide."""

    techniques: tuple[Technique, ...]

    @property
    def to_plan(self) -> str:
        """For plans: the form, and each technique's idea and when it pays."""
        if not self.techniques:
            return self.form
        leads = "\n\n".join(technique.lead for technique in self.techniques)
        return f"{self.form}\n\n# Techniques that may pay here\n{leads}"

    @property
    def to_write(self) -> str:
        """For code: the whole guide and techniques."""
        return "\n\n".join([self.guide.strip(), *(technique.text for technique in self.techniques)])

    @property
    def to_repair(self) -> str:
        """For repairs: the guide, and each technique's traps."""
        return "\n\n".join(
            [self.guide.strip(), *(technique.traps for technique in self.techniques)]
        )


@dataclass(frozen=True)
class Language:
    """One kernel language. Its guide is the file `<name>.md` beside this one."""

    name: str
    title: str
    """Name for people and models, such as `Triton`."""

    device_kinds: tuple[DeviceKind, ...]
    preload: tuple[str, ...]
    """Modules that the judge imports once, in the process that candidates are forked from.

    The variables of `environment` must be set before the import.
    """

    tools: tuple[Tool, ...]
    """What a machine needs to build and run candidates."""

    rule: Callable[[ast.Module], str | None]
    """Returns why a parsed file that defines `ModelNew` is not in this language, or None."""

    environment: Callable[[Path, str | None], dict[str, str]]
    """Returns the variables for building and running a candidate, from a folder and an architecture.

    All builds and caches go into the folder. The architecture (`sm_90`) allows builds without a device; None
    detects it from the device.
    """

    techniques: tuple[Technique, ...] = ()
    """Techniques that a prompt may include beside the guide, in order of priority."""

    has_compiler: bool = False
    """Whether `torch.compile` generates code in it."""

    @property
    def guide(self) -> str:
        """The text that every prompt includes: the form, one worked example, the traps."""
        return files("stark.languages").joinpath(f"{self.name}.md").read_text(encoding="utf-8")

    @property
    def form(self) -> str:
        """The guide's rules for every candidate; plans must respect them."""
        return section(self.guide, "The form")

    def lessons(self, reference: Reference) -> Lessons:
        """The guide and the techniques for the problem of this reference."""
        return Lessons(self.form, self.guide, choose(self.techniques, work_of(reference)))

    def check(self, source: str) -> str | None:
        """Why this text is not a candidate in the language, in one sentence, or None if it may be one."""
        try:
            tree = parse_python(source)
        except SyntaxError as error:
            where = "" if error.lineno is None else f"line {error.lineno}: "
            return f"The file does not parse: {where}{error.msg}."
        if "ModelNew" not in dict(bindings(tree)):
            return "The file does not define a class ModelNew at its top level."
        return self.rule(tree)

    def toolchain(self) -> str:
        """The tools and versions that a build depends on: part of its key in the cache."""
        return "; ".join(tool.found() or f"without {tool.name}" for tool in self.tools)

    def missing(self) -> str | None:
        """The first tool that this machine lacks, with how to get it, or None."""
        lacking = (tool for tool in self.tools if tool.found() is None)
        return next((f"This machine lacks {tool.name}; {tool.remedy}." for tool in lacking), None)
