"""Defines a kernel language: the form of its candidates, how they are checked and built, and what models are taught.

A candidate is a Python file that defines `ModelNew`. `Language.check` only reads the candidate's source;
the judge runs the candidate and decides whether the results are correct.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal

from stark.core.device import Device
from stark.core.python import bindings, parse_python
from stark.core.reference import Reference
from stark.languages.technique import HOPPER, Technique, fitting, paying, section
from stark.languages.tools import Tool
from stark.languages.work import work_of

DeviceKind = Literal["cpu", "cuda"]

WITHOUT_GRADIENTS = "`forward` runs without gradients and returns"
WITH_GRADIENTS = "`forward` runs with gradients enabled and returns"
"""What every guide says, and what stands there if gradients are judged."""

_NAMING = "The engineer is shown the whole text, with an example, of those that your plan names."
_EXAMPLE = re.compile(r"^## Example.*?(?=^## )", re.MULTILINE | re.DOTALL)
"""Matches a section with a worked example; such a section is never a guide's last."""


@dataclass(frozen=True)
class Guidance:
    """The guidance that models get for one problem on one device. Each kind of prompt includes different guidance."""

    form: str
    """The guide's section "The form": the rules for every candidate."""

    guide: str
    """The whole guide, including the form."""

    techniques: tuple[Technique, ...]
    """All that may pay for the problem, in order of priority."""

    @property
    def to_plan(self) -> str:
        """The part for prompts that ask for a plan: the form, and a line for each technique."""
        if not self.techniques:
            return self.form
        lines = "\n".join(technique.line for technique in self.techniques)
        return f"{self.form}\n\n# Techniques that may pay here\n{_NAMING}\n{lines}"

    @property
    def to_write(self) -> str:
        """The guide and the techniques in full, for whoever writes candidates without a plan."""
        return "\n\n".join([self.guide.strip(), *(each.text for each in self.taught())])

    @property
    def without_examples(self) -> str:
        """The guide without its worked examples, for prompts that show a working candidate."""
        return _EXAMPLE.sub("", self.guide)

    def taught(self, keys: Collection[str] | None = None) -> tuple[Technique, ...]:
        """The techniques for one prompt that asks for code: those with one of these keys, or without keys all that fit."""
        return fitting(each for each in self.techniques if keys is None or each.key in keys)


@dataclass(frozen=True)
class Language:
    """One kernel language. Its guide is the file `<name>.md` in this folder."""

    name: str
    title: str
    """The name shown to people and models, such as `C++ with OpenMP`."""

    device_kinds: tuple[DeviceKind, ...]
    preload: tuple[str, ...]
    """Modules that the judge imports once, in the process from which it forks one process per candidate.

    The environment variables from `environment` must be set before this import.
    """

    tools: tuple[Tool, ...]
    """The programs and packages that a machine needs to build and run candidates."""

    rule: Callable[[ast.Module], str | None]
    """Takes a parsed file that defines `ModelNew`. Returns why the file is not in this language, or None if it is."""

    environment: Callable[[Path, str | None], dict[str, str]]
    """Takes a folder and an architecture. Returns the environment variables for building and running a candidate.

    All builds and caches go into the folder. Given an architecture such as `sm_90`, the build needs no device; given
    None, the build tools detect the architecture of the device.
    """

    pays: str = ""
    """When to choose this language among those of a device, as one line for the planner."""

    hopper: bool = False
    """Whether the guide is for NVIDIA GPUs from `sm_90` on, so that the language is offered on no others."""

    compiles_when_called: bool = False
    """Whether candidates compile and tune at their first calls, and nothing when they are imported."""

    techniques: tuple[Technique, ...] = ()
    """Techniques that a prompt may include in addition to the guide, in order of priority."""

    @property
    def guide(self) -> str:
        """The text of the guide: the form, one worked example, and advice for correct and fast code."""
        return files("stark.languages").joinpath(f"{self.name}.md").read_text(encoding="utf-8")

    @property
    def form(self) -> str:
        """The guide's section "The form": the rules for every candidate. Plans must respect these rules too."""
        return section(self.guide, "The form")

    def guidance(
        self, reference: Reference, backward: bool = False, tunes: bool = False
    ) -> Guidance:
        """What models are taught for the problem that this reference belongs to.

        With `backward`, also of gradients; with `tunes`, how constants are declared that the judge may change.
        """
        found = self._guidance(reference, backward)
        if not tunes:
            return found
        rules = files("stark.languages").joinpath("tuning.md").read_text(encoding="utf-8").strip()
        whole = f"{found.guide.strip()}\n\n## Constants to tune\n{rules}"
        return replace(found, form=f"{found.form}\n{rules}", guide=whole)

    def _guidance(self, reference: Reference, backward: bool) -> Guidance:
        works = map(work_of, reference.cases.values() or [reference])
        techniques = paying(self.techniques, *works)
        if not backward:
            return Guidance(self.form, self.guide, techniques)
        form, guide = (
            text.replace(WITHOUT_GRADIENTS, WITH_GRADIENTS) for text in (self.form, self.guide)
        )
        taught, rules = self._on_gradients()
        return Guidance(f"{form}\n\n{rules}", f"{guide.strip()}\n\n{taught}", techniques)

    def _on_gradients(self) -> tuple[str, str]:
        """What models are taught of gradients in this language, and the part of it for prompts that ask for a plan."""
        text = files("stark.languages").joinpath("gradients.md").read_text(encoding="utf-8")
        common, own = text.partition("\n## With ")[0].strip(), section(text, f"With {self.name}")
        rules = common.partition("\n## Example with gradients")[0].strip()
        return f"{common}\n\n## Gradients with {self.title}\n{own}", rules

    def fits(self, device: Device) -> bool:
        """Whether the language is worth offering on this device."""
        newer = not self.hopper or HOPPER.match(device.architecture) is not None
        return device.kind in self.device_kinds and newer

    def check(self, source: str) -> str | None:
        """Returns one sentence on why this source cannot be a candidate in this language, or None if it can be."""
        try:
            tree = parse_python(source)
        except SyntaxError as error:
            where = "" if error.lineno is None else f"line {error.lineno}: "
            return f"The file does not parse: {where}{error.msg}."
        if "ModelNew" not in dict(bindings(tree)):
            return "The file does not define a class ModelNew at its top level."
        return self.rule(tree)

    def toolchain(self) -> str:
        """One line with the tools that a build depends on and their versions. Part of the build's cache key."""
        return "; ".join(tool.found() or f"without {tool.name}" for tool in self.tools)

    def missing(self) -> str | None:
        """A message that names the first missing tool and says how to get it, or None if no tool is missing."""
        lacking = (tool for tool in self.tools if tool.found() is None)
        return next((f"This machine lacks {tool.name}; {tool.remedy}." for tool in lacking), None)
