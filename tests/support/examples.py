"""The worked examples in the languages' guides and techniques."""

from __future__ import annotations

import re
from typing import NamedTuple

from stark.core.candidate import Candidate
from stark.core.problem import Problem
from stark.languages import Language
from stark.languages.technique import Technique


class Example(NamedTuple):
    """A guide's worked example."""

    problem: Problem
    candidate: Candidate


def guide_example(language: Language) -> Example:
    """The guide's small problem and a candidate for it."""
    return Example(
        Problem(name="bias_relu_normalize", source=_fenced(language.guide, "python problem")),
        Candidate(language=language.name, source=_fenced(language.guide, "python")),
    )


def gradient_example(text: str) -> str:
    """The last example with gradients of what models are taught: a complete candidate for the guide's problem."""
    found: list[str] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return found[-1]


def technique_example(technique: Technique) -> str:
    """The source of its example, a complete candidate."""
    return _fenced(technique.text, "python")


def _fenced(text: str, info: str) -> str:
    """The content of the one block fenced by three backticks whose info string is exactly `info`."""
    pattern = rf"^```{info}\n(?P<block>.*?)^```$"
    (found,) = re.finditer(pattern, text, re.MULTILINE | re.DOTALL)
    return found["block"]
