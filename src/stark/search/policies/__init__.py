"""The search policies by name. A new one is a file here and a line below."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stark.search.policies.always_root import AlwaysRoot
from stark.search.policies.base import Policy
from stark.search.policies.epsilon_greedy import EpsilonGreedy
from stark.search.policies.latest import Latest

POLICIES: Mapping[str, Callable[[], Policy]] = {
    EpsilonGreedy.name: EpsilonGreedy,
    AlwaysRoot.name: AlwaysRoot,
    Latest.name: Latest,
}
