"""How much of a language each role is taught for one problem.

A plan needs to know what could be done, a writer how it is done, and a repair what goes wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from stark.languages.technique import Technique


@dataclass(frozen=True)
class Lessons:
    """A guide and the techniques chosen for one problem on one device."""

    form: str
    """The guide's rules for every candidate."""

    guide: str
    """The whole guide."""

    techniques: tuple[Technique, ...]

    @property
    def to_plan(self) -> str:
        """The form, and of each technique when it pays and the idea."""
        if not self.techniques:
            return self.form
        leads = "\n\n".join(technique.lead for technique in self.techniques)
        return f"{self.form}\n\n# Techniques that may pay here\n{leads}"

    @property
    def to_write(self) -> str:
        """The guide and the techniques, whole."""
        return "\n\n".join([self.guide.strip(), *(technique.text for technique in self.techniques)])

    @property
    def to_repair(self) -> str:
        """The guide, and of each technique the traps."""
        return "\n\n".join(
            [self.guide.strip(), *(technique.traps for technique in self.techniques)]
        )
