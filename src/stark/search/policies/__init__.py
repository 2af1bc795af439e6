"""The registry of search policies. To add one, write a file in this folder and a line below."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stark.search.policies.base import RegisteredPolicy
from stark.search.policies.baselines import AlwaysRoot, Latest
from stark.search.policies.best_first import BestFirst
from stark.search.policies.epsilon_greedy import EpsilonGreedy

POLICIES: Mapping[str, Callable[..., RegisteredPolicy]] = {
    EpsilonGreedy.name: EpsilonGreedy,
    BestFirst.name: BestFirst,
    AlwaysRoot.name: AlwaysRoot,
    Latest.name: Latest,
}
