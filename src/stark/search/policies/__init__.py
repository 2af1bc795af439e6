"""The search policies by name. A new one is a file here and a line below."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stark.search.policies.aide import Aide
from stark.search.policies.always_root import AlwaysRoot
from stark.search.policies.base import Policy
from stark.search.policies.beam import Beam
from stark.search.policies.best_first import BestFirst
from stark.search.policies.debug_at_once import DebugAtOnce
from stark.search.policies.epsilon_greedy import EpsilonGreedy
from stark.search.policies.latest import Latest
from stark.search.policies.thompson import Thompson
from stark.search.policies.ucb import Ucb

POLICIES: Mapping[str, Callable[..., Policy]] = {
    EpsilonGreedy.name: EpsilonGreedy,
    AlwaysRoot.name: AlwaysRoot,
    Latest.name: Latest,
    DebugAtOnce.name: DebugAtOnce,
    Aide.name: Aide,
    BestFirst.name: BestFirst,
    Beam.name: Beam,
    Ucb.name: Ucb,
    Thompson.name: Thompson,
}
