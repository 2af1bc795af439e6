from __future__ import annotations

from stark.core.evaluation import Incorrect
from stark.report.agent_documents import evidence_text


def test_agents_do_not_see_the_values_that_they_must_reach() -> None:
    error = "output 0 at [0, 3]: expected -1.25e-07, got nan\ngot = 0.5 * expected"

    assert "output 0 at [0, 3]: got nan\ngot = 0.5 * expected" == evidence_text(
        Incorrect(error=error)
    )
