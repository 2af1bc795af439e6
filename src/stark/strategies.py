"""Strategies by name: which policy chooses the node, and which team works on it.

`stark` is the method; `sampling` and `reflexion` are the paper's baselines, `search-only` and
`team-only` its ablations. All run in the same loop, on the same evaluator and budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from stark.agents.team import PlanCodeDebug, Solo, Team
from stark.core.errors import UsageError
from stark.search.policies import POLICIES
from stark.search.policies.base import Policy


@dataclass(frozen=True)
class Strategy:
    """A way to spend a budget of attempts."""

    name: str
    policy: Policy
    team: Team
    summary: str


STRATEGIES: dict[str, Strategy] = {
    entry.name: entry
    for entry in (
        Strategy(
            "stark",
            POLICIES["epsilon-greedy"](),
            PlanCodeDebug(),
            "plan, code and debug agents over an epsilon-greedy search of the tree",
        ),
        Strategy(
            "sampling",
            POLICIES["always-root"](),
            Solo(memory=False),
            "one agent, independent tries from the reference",
        ),
        Strategy(
            "reflexion",
            POLICIES["latest"](),
            Solo(memory=False),
            "one agent that revises its last try",
        ),
        Strategy(
            "search-only",
            POLICIES["epsilon-greedy"](),
            Solo(memory=True),
            "one agent over the search of the tree",
        ),
        Strategy(
            "team-only",
            POLICIES["latest"](),
            PlanCodeDebug(),
            "the three agents in a line, without a tree",
        ),
    )
}


def strategy(name: str) -> Strategy:
    """The strategy of this name. Raises UsageError, which lists the names there are."""
    if name not in STRATEGIES:
        raise UsageError(f"There is no strategy {name!r}; choose one of {', '.join(STRATEGIES)}.")
    return STRATEGIES[name]
