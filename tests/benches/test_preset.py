from __future__ import annotations

from stark.benches.preset import PAPER_STRATEGIES
from stark.strategies import STRATEGIES, strategy


def test_the_papers_protocol_has_every_strategy_the_method_first() -> None:
    assert set(STRATEGIES) == set(PAPER_STRATEGIES)
    assert "epsilon-greedy" == strategy(PAPER_STRATEGIES[0]).policy
