"""Every C++ technique's example, judged: it builds, and computes what its problem says on inputs of all regimes."""

from __future__ import annotations

import pytest
import technique_samples as samples

from stark.core.evaluation import Correct
from stark.core.judging import Limits
from stark.evaluator.executors import Executor
from stark.languages import LANGUAGES
from stark.languages.technique import Technique
from support.sharing import JudgeWithin

pytest.importorskip("torch")

CPP = LANGUAGES["cpp"]

pytestmark = [
    pytest.mark.skipif(CPP.missing() is not None, reason=str(CPP.missing())),
    pytest.mark.asyncio(loop_scope="session"),
]


@pytest.fixture(scope="module")
def executor(judge_within: JudgeWithin) -> Executor:
    return judge_within(Limits(timing_budget_s=0.1))


@pytest.mark.parametrize("technique", CPP.techniques, ids=lambda technique: technique.name)
async def test_the_example_is_correct(executor: Executor, technique: Technique) -> None:
    candidate = samples.candidate_of(technique, CPP)

    evaluation = await executor.evaluate(samples.problem_of(technique), candidate)

    assert isinstance(evaluation, Correct), evaluation
    assert "float64" == evaluation.accuracy.oracle


async def test_streaming_stores_are_right_too(executor: Executor) -> None:
    """They are for large results, so the example itself does not get there."""
    technique = next(entry for entry in CPP.techniques if entry.name == "cpp/memory_traffic")
    candidate = samples.candidate_of(technique, CPP)
    always = candidate.source.replace("STREAM_FROM = 8 << 20", "STREAM_FROM = 0")
    assert always != candidate.source

    evaluation = await executor.evaluate(
        samples.problem_of(technique), candidate.model_copy(update={"source": always})
    )

    assert isinstance(evaluation, Correct), evaluation
