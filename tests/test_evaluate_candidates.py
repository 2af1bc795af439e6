from __future__ import annotations

import pytest

from stark.core.candidate import Candidate
from stark.core.evaluation import Evaluation
from stark.core.problem import Problem
from stark.evaluating import Judged, Written, evaluate_candidates, shortfall
from stark.languages import language
from support.examples import guide_example
from support.executor import FakeExecutor
from support.nodes import CPU, correct, failure

PROBLEM = Problem(name="linear", source="class Model: ...")
GOOD = guide_example(language("cpp")).candidate.source


async def test_results_come_in_the_order_of_the_sources_and_each_is_told_as_it_arrives() -> None:
    def evaluation(candidate: Candidate) -> Evaluation:
        return correct(0.5)

    sources = [
        Written(file="one.py", source=GOOD, languages=("triton", "cpp")),
        Written(file="broken.py", fault="it does not parse"),
        Written(file="two.py", source=GOOD, languages=("cpp",)),
    ]
    told: list[Judged] = []

    judged = await evaluate_candidates(
        PROBLEM, sources, FakeExecutor(evaluation), "search", CPU, told.append
    )

    assert ["one.py", "broken.py", "two.py"] == [each.file for each in judged]
    assert ["correct", "unusable", "correct"] == [each.evaluation.status for each in judged]
    assert {each.file for each in judged} == {each.file for each in told}


@pytest.mark.parametrize(
    ("evaluation", "least", "expected"),
    [
        (correct(0.5), 2.0, None),
        (
            correct(0.5),
            2.5,
            "2.00x vs eager [2.00, 2.00]: the lower end is below the required 2.5x",
        ),
        (failure("incorrect"), 2.0, None),
    ],
)
def test_a_correct_candidate_falls_short_by_the_lower_end(
    evaluation: Evaluation, least: float, expected: str | None
) -> None:
    assert expected == shortfall(evaluation, least, "eager")
