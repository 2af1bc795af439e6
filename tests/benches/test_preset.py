from __future__ import annotations

from stark.benches.preset import paper
from stark.strategies import STRATEGIES, strategy


def test_the_papers_protocol_has_every_strategy_with_the_papers_budget() -> None:
    preset = paper()

    assert set(STRATEGIES) == set(preset.strategies)
    assert (30, 1, (1, 2, 3), None) == (
        preset.attempts,
        preset.parallel,
        preset.levels,
        preset.problems,
    )
    assert "epsilon-greedy" == strategy(preset.strategies[0]).policy
    assert "reference" == preset.start
