from __future__ import annotations

from typing import Any

import pytest

from stark.core.candidate import Candidate
from stark.core.problem import Problem
from stark.core.together import together

OLD_STYLE = """
class Model:
    def __init__(self, factor):
        super(Model, self).__init__()
        self.factor = factor
    def forward(self, x, y):
        return self.factor * x, y

def get_inputs(case="a"):
    return [case, f"{case}'s other"]
"""
NEW = OLD_STYLE.replace("Model", "ModelNew").partition("def get_inputs")[0]


def test_one_call_serves_the_cases_in_turn() -> None:
    pair = together(
        Problem(name="p", source=OLD_STYLE), Candidate(language="cpp", source=NEW), ("a", "b", "c")
    )

    assert pair is not None
    problem, candidate = pair
    space: dict[str, Any] = {}
    exec(problem.source, space)
    exec(candidate.source, space)
    given = space["get_inputs"]()
    expected = [("aa", "a's other"), ("bb", "b's other"), ("cc", "c's other")]
    assert ["a", "a's other", "b", "b's other", "c", "c's other"] == given
    assert expected == space["Model"](2).forward(*given) == space["ModelNew"](2).forward(*given)
    assert "p[a, b, c]" == problem.name
    assert candidate.source.startswith(NEW.rstrip())


@pytest.mark.parametrize(
    ("problem", "candidate"),
    [
        (OLD_STYLE, "from other import ModelNew"),
        ("from other import Block as Model", NEW),
        (OLD_STYLE, "def ModelNew(): ..."),
    ],
)
def test_what_is_no_class_of_its_file_cannot_be_called_so(problem: str, candidate: str) -> None:
    pair = Problem(name="p", source=problem), Candidate(language="cpp", source=candidate)

    assert together(*pair, ("a", "b")) is None
