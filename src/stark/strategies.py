"""Strategies by name: which policy chooses the node, and which team works on it.

`stark` is the method; `sampling` and `reflexion` are the paper's baselines, `search-only` and
`team-only` its ablations. All run in the same loop, on the same evaluator and budget.

A strategy's team also works under any other policy: `stark:epsilon-greedy` is the search as the paper
has it. Ours in its place is what the policy lab supports (docs/search.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
            POLICIES["best-first"](),
            PlanCodeDebug(memory=True),
            "plan, code and debug agents over a best-first search of the tree",
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
            POLICIES["best-first"](),
            Solo(memory=True),
            "one agent over the search of the tree",
        ),
        Strategy(
            "team-only",
            POLICIES["latest"](),
            PlanCodeDebug(memory=False),
            "the three agents in a line, without a tree",
        ),
    )
}


def strategy(name: str) -> Strategy:
    """The strategy of this name, such as `stark`, or of a name and a policy, such as `stark:ucb`.

    Raises UsageError, which lists the names there are.
    """
    base, colon, policy = name.partition(":")
    if base not in STRATEGIES:
        raise UsageError(f"There is no strategy {base!r}; choose one of {', '.join(STRATEGIES)}.")
    if not colon:
        return STRATEGIES[base]
    if policy not in POLICIES:
        raise UsageError(f"There is no policy {policy!r}; choose one of {', '.join(POLICIES)}.")
    found = STRATEGIES[base]
    return replace(
        found,
        name=name,
        policy=POLICIES[policy](),
        summary=f"the team of {base} under the policy {policy}",
    )
