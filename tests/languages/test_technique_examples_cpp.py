"""Every C++ technique's example, judged: it builds, and computes what its problem says on inputs of all regimes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import technique_samples as samples

from stark.core.evaluation import Correct
from stark.evaluator.executors import Executor, open_executor
from stark.evaluator.protocol import Limits
from stark.languages import LANGUAGES
from stark.languages.technique import Technique

pytest.importorskip("torch")

CPP = LANGUAGES["cpp"]

pytestmark = [
    pytest.mark.skipif(CPP.missing() is not None, reason=str(CPP.missing())),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def executor() -> AsyncIterator[Executor]:
    judge = open_executor("local:cpu", Limits(timing_budget_s=0.1))
    yield judge
    await judge.close()


@pytest.mark.parametrize("technique", CPP.techniques, ids=lambda technique: technique.name)
async def test_the_example_is_correct(executor: Executor, technique: Technique) -> None:
    candidate = samples.candidate_of(technique, CPP)

    evaluation = await executor.evaluate(samples.problem_of(technique), candidate)

    assert isinstance(evaluation, Correct), evaluation
    assert "float64" == evaluation.accuracy.oracle
