"""Selects the parts of a language's guide and techniques that each role's prompt includes.

The plan role gets the ideas, the code role everything, the debug role the traps.
"""

from __future__ import annotations

from dataclasses import dataclass

from stark.languages.technique import Technique


@dataclass(frozen=True)
class Lessons:
    """A guide and the techniques for one problem on one device."""

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
