"""Strategies by name: a search policy with its parameters, and a team.

`stark` is the method of arXiv 2510.16996 as published summaries describe it: three roles under the adapted
epsilon-greedy search. `sampling` and `reflexion` are the paper's baselines, `search-only` and `team-only` its
ablations. All run in the same loop, with the same evaluator and budget.

`NAME:POLICY` is the team of NAME under another policy; `stark:best-first` is the search that we designed
(docs/search.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from stark.agents.team import PlanCodeDebug, Solo, Team
from stark.core.errors import UsageError
from stark.core.run import Strategy
from stark.search.policies import POLICIES
from stark.search.policies.base import Policy

STRATEGIES: dict[str, tuple[Strategy, str]] = {
    entry.name: (entry, summary)
    for entry, summary in (
        (
            Strategy(name="stark", policy="epsilon-greedy", team="plan-code-debug", memory=True),
            "plan, code and debug agents over an epsilon-greedy search of the tree",
        ),
        (
            Strategy(name="sampling", policy="always-root", team="solo", memory=False),
            "one agent, independent tries from the reference",
        ),
        (
            Strategy(name="reflexion", policy="latest", team="solo", memory=False),
            "one agent that revises its last try",
        ),
        (
            Strategy(name="search-only", policy="epsilon-greedy", team="solo", memory=True),
            "one agent under the search of stark",
        ),
        (
            Strategy(name="team-only", policy="always-root", team="plan-code-debug", memory=False),
            "the three agents, independent tries from the reference",
        ),
    )
}
"""Every strategy with a summary in one line; parameters are filled in by `strategy`."""


def strategy(name: str, parameters: Mapping[str, int | float] | None = None) -> Strategy:
    """The strategy that `name` stands for, such as `stark` or `stark:ucb`, with every parameter of its policy.

    Raises UsageError for an unknown name, policy or parameter, or a value that the policy refuses.
    """
    base, colon, policy = name.partition(":")
    if base not in STRATEGIES:
        raise UsageError(f"there is no strategy {base!r}; choose one of {', '.join(STRATEGIES)}")
    found, _ = STRATEGIES[base]
    chosen = policy if colon else found.policy
    values = asdict(_policy(chosen, dict(parameters or {})))  # type: ignore[call-overload]
    return found.model_copy(update={"name": name, "policy": chosen, "parameters": values})


def policy_of(strategy: Strategy) -> Policy:
    """The policy of a resolved strategy. Raises UsageError for one that this version does not have."""
    return _policy(strategy.policy, strategy.parameters)


def team_of(strategy: Strategy) -> Team:
    """The team of a resolved strategy."""
    if strategy.team == "solo":
        return Solo(memory=strategy.memory)
    return PlanCodeDebug(memory=strategy.memory)


def _policy(name: str, parameters: Mapping[str, int | float]) -> Policy:
    if name not in POLICIES:
        raise UsageError(f"there is no search policy {name!r}; choose one of {', '.join(POLICIES)}")
    try:
        return POLICIES[name](**parameters)
    except TypeError as error:
        raise UsageError(f"the search policy {name} cannot be set up so: {error}") from error
