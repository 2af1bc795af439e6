"""Strategies by name. A strategy is a search policy with its parameters, and a team of model roles.

`stark` is the method of arXiv 2510.16996, as published summaries describe it: three roles under the adapted
epsilon-greedy search. `sampling` and `reflexion` are the paper's baselines, `search-only` and `team-only` its
ablations. All run in the same loop, with the same evaluator and budget.

Three ways to write a strategy:

- `NAME`, such as `stark`
- `NAME:POLICY`, the team of NAME with another policy, such as `stark:best-first` (this project's own policy, which
  docs/search.md describes)
- either form followed by parameters of the policy, such as `stark:epsilon-greedy(epsilon=0.2,n_root=8)`
"""

from __future__ import annotations

import re
from dataclasses import asdict

from stark.agents.team import PlanCodeDebug, Solo, Team
from stark.core.errors import UsageError
from stark.core.run import Strategy
from stark.search.policies import POLICIES
from stark.search.policies.base import RegisteredPolicy

STRATEGIES: dict[str, Strategy] = {
    entry.name: entry
    for entry in (
        Strategy(name="stark", policy="epsilon-greedy", team="plan-code-debug", memory=True),
        Strategy(name="sampling", policy="always-root", team="solo", memory=False),
        Strategy(name="reflexion", policy="latest", team="solo", memory=False),
        Strategy(name="search-only", policy="epsilon-greedy", team="solo", memory=True),
        Strategy(name="team-only", policy="always-root", team="plan-code-debug", memory=False),
    )
}
"""The strategies by name, without parameters; the function `strategy` fills in the parameters."""

_NOTATION = re.compile(r"(?P<base>[^:()]*)(:(?P<policy>[^:()]*))?(\((?P<parameters>[^()]*)\))?")


def strategy(name: str) -> Strategy:
    """Resolve a strategy that a user wrote; the result has a value for every parameter of its policy.

    Raises UsageError for an unknown name, policy or parameter, and for a value that the policy refuses.
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
    found = STRATEGIES[base]
    policy = found.policy if written["policy"] is None else written["policy"]
    given = _parse(written["parameters"] or "")
    asked = found.model_copy(update={"name": name, "policy": policy, "parameters": given})
    return asked.model_copy(update={"parameters": asdict(policy_of(asked))})


def split_strategies(text: str) -> list[str]:
    """The strategies in a comma-separated list, each once; commas inside parentheses do not separate."""
    parts = (part.strip() for part in re.split(r",(?![^()]*\))", text))
    return list(dict.fromkeys(part for part in parts if part))


def policy_of(strategy: Strategy) -> RegisteredPolicy:
    """The policy of a strategy. Raises UsageError for a policy or a parameter that this version does not have."""
    name, parameters = strategy.policy, strategy.parameters
    if name not in POLICIES:
        raise UsageError(f"there is no search policy {name!r}; choose one of {', '.join(POLICIES)}")
    make = POLICIES[name]
    defaults = asdict(make())
    for key, value in parameters.items():
        if key not in defaults:
            there_are = f"its parameters are {', '.join(defaults)}" if defaults else "it has none"
            raise UsageError(f"the search policy {name} has no parameter {key!r}; {there_are}")
        if isinstance(defaults[key], int) and not isinstance(value, int):
            raise UsageError(
                f"{key} of the search policy {name} must be a whole number, not {value}"
            )
    return make(**{key: type(defaults[key])(value) for key, value in parameters.items()})


def team_of(strategy: Strategy) -> Team:
    """The team of a resolved strategy."""
    team = Solo if strategy.team == "solo" else PlanCodeDebug
    return team(memory=strategy.memory)


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
