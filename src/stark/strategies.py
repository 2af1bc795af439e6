"""Strategies by name: a search policy with its parameters, and a team.

`stark` is the method of arXiv 2510.16996, as published summaries describe it: three roles under the adapted
epsilon-greedy search. `sampling` and `reflexion` are the paper's baselines, `search-only` and `team-only` its
ablations. All run in the same loop, with the same evaluator and budget.

Three ways to write a strategy:

- `NAME`, such as `stark`
- `NAME:POLICY`, the team of NAME under another policy; `stark:best-first` is our own search (docs/search.md)
- either one with parameters of the policy, such as `stark:epsilon-greedy(epsilon=0.2,n_root=8)`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict

from stark.agents.team import PlanCodeDebug, Solo, Team
from stark.core.errors import UsageError
from stark.core.run import Strategy
from stark.search.policies import POLICIES
from stark.search.policies.base import Policy, RegisteredPolicy

STRATEGIES: dict[str, tuple[Strategy, str]] = {
    entry.name: (entry, summary)
    for entry, summary in (
        (
            Strategy(name="stark", policy="epsilon-greedy", team="plan-code-debug", memory=True),
            "plan, code and debug agents over an epsilon-greedy search of the tree",
        ),
        (
            Strategy(name="sampling", policy="always-root", team="solo", memory=False),
            "one agent, independent attempts from the reference",
        ),
        (
            Strategy(name="reflexion", policy="latest", team="solo", memory=False),
            "one agent that revises its last attempt",
        ),
        (
            Strategy(name="search-only", policy="epsilon-greedy", team="solo", memory=True),
            "one agent under the search of stark",
        ),
        (
            Strategy(name="team-only", policy="always-root", team="plan-code-debug", memory=False),
            "the three agents, independent attempts from the reference",
        ),
    )
}
"""Every strategy and its one-line summary; `strategy` fills in the parameters."""

_NOTATION = re.compile(r"(?P<base>[^:()]*)(:(?P<policy>[^:()]*))?(\((?P<parameters>[^()]*)\))?")


def strategy(name: str, parameters: Mapping[str, int | float] | None = None) -> Strategy:
    """Resolve a strategy as the user wrote it, with every parameter of its policy.

    `parameters` take precedence over those in `name`. Raises UsageError for an unknown name, policy or
    parameter, and for a value that the policy refuses.
    """
    name = "".join(name.split())
    written = _NOTATION.fullmatch(name)
    if written is None:
        raise UsageError(
            f"{name!r} is not a strategy; write NAME, NAME:POLICY or NAME:POLICY(parameter=value,...)"
        )
    base = written["base"]
    if base not in STRATEGIES:
        raise UsageError(f"there is no strategy {base!r}; choose one of {', '.join(STRATEGIES)}")
    found, _ = STRATEGIES[base]
    policy = found.policy if written["policy"] is None else written["policy"]
    values = _parse(written["parameters"] or "") | dict(parameters or {})
    resolved = asdict(_policy(policy, values))
    return found.model_copy(update={"name": name, "policy": policy, "parameters": resolved})


def split_strategies(text: str) -> list[str]:
    """The strategies in a comma-separated list, each once; commas inside parentheses do not separate."""
    parts = (part.strip() for part in re.split(r",(?![^()]*\))", text))
    return list(dict.fromkeys(part for part in parts if part))


def policy_of(strategy: Strategy) -> Policy:
    """The policy of a resolved strategy. Raises UsageError if this version does not have it."""
    return _policy(strategy.policy, strategy.parameters)


def team_of(strategy: Strategy) -> Team:
    """The team of a resolved strategy."""
    if strategy.team == "solo":
        return Solo(memory=strategy.memory)
    return PlanCodeDebug(memory=strategy.memory)


def _policy(name: str, parameters: Mapping[str, int | float]) -> RegisteredPolicy:
    if name not in POLICIES:
        raise UsageError(f"there is no search policy {name!r}; choose one of {', '.join(POLICIES)}")
    make = POLICIES[name]
    defaults = asdict(make())
    for key, value in parameters.items():
        if key not in defaults:
            there_are = f"its parameters are {', '.join(defaults)}" if defaults else "it has none"
            raise UsageError(f"the search policy {name} has no parameter {key!r}; {there_are}")
        if isinstance(defaults[key], int) and not isinstance(value, int):
            raise UsageError(f"{key} of the search policy {name} is a whole number, not {value}")
    return make(**{key: type(defaults[key])(value) for key, value in parameters.items()})


def _parse(parameters: str) -> dict[str, int | float]:
    """The parameters in `epsilon=0.2,n_root=8`."""
    found: dict[str, int | float] = {}
    for part in filter(None, map(str.strip, parameters.split(","))):
        key, _, value = (each.strip() for each in part.partition("="))
        try:
            found[key] = int(value) if re.fullmatch(r"[+-]?\d+", value) else float(value)
        except ValueError:
            raise UsageError(
                f"{part!r} is not a parameter; write name=number, such as epsilon=0.2"
            ) from None
    return found
