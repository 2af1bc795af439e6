"""The problem that each technique's example solves: a file of the technique's name in `techniques/`."""

from __future__ import annotations

from pathlib import Path

from stark.core.candidate import Candidate
from stark.core.problem import Problem
from stark.languages import LANGUAGES, Language
from stark.languages.technique import Technique
from support.candidates import as_candidate
from support.examples import technique_example

PROBLEMS = Path(__file__).parent / "techniques"


def problem_of(technique: Technique) -> Problem:
    """What its example computes; the input is small and its sizes are odd."""
    path = PROBLEMS / f"{technique.name}.py"
    return Problem(name=technique.name, source=path.read_text("utf-8"))


def candidate_of(technique: Technique, language: Language) -> Candidate:
    """Its example; one for every language of a GPU has no kernel, so it gets one that is never called."""
    if language.check(technique_example(technique)) is None:
        return Candidate(language=language.name, source=technique_example(technique))
    return as_candidate(language.name, technique_example(technique))


def taught(*names: str) -> list[tuple[Language, Technique]]:
    """Every technique of these languages, with its language."""
    return [
        (LANGUAGES[name], technique) for name in names for technique in LANGUAGES[name].techniques
    ]
