"""The registry of search policies. To add one, write a file in this folder and a line below."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stark.search.policies.always_root import AlwaysRoot
from stark.search.policies.base import RegisteredPolicy
from stark.search.policies.best_first import BestFirst
from stark.search.policies.epsilon_greedy import EpsilonGreedy
from stark.search.policies.latest import Latest

POLICIES: Mapping[str, Callable[..., RegisteredPolicy]] = {
    EpsilonGreedy.name: EpsilonGreedy,
    BestFirst.name: BestFirst,
    AlwaysRoot.name: AlwaysRoot,
    Latest.name: Latest,
}
