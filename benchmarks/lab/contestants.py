"""The policies that the lab compares: the product's, the lab's own, and variants with one rule changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab.policies import LAB_POLICIES
from lab.policies.debug_at_once import DebugAtOnce
from stark.search.policies import POLICIES
from stark.search.policies.base import Policy
from stark.search.policies.best_first import BestFirst
from stark.search.policies.epsilon_greedy import EpsilonGreedy

PAPER = EpsilonGreedy.name
"""The policy that all others are compared with."""

UNLIMITED = 1_000_000

VARIANTS: Mapping[str, Callable[[], Policy]] = {
    "paper, epsilon 0": lambda: EpsilonGreedy(epsilon=0.0),
    "paper, no throttle": lambda: EpsilonGreedy(n_root=UNLIMITED),
    "paper, no pruning": lambda: EpsilonGreedy(n_child=UNLIMITED),
    "debug-at-once, 1 repair": lambda: DebugAtOnce(repairs=1),
    "best-first, 1 draft": lambda: BestFirst(drafts=1),
    "best-first, 5 drafts": lambda: BestFirst(drafts=5),
    "best-first, no repairs": lambda: BestFirst(repairs=0),
    "best-first, 3 repairs": lambda: BestFirst(repairs=3),
    "best-first, not fresh": lambda: BestFirst(fresh=0.0),
    "best-first, no quota": lambda: BestFirst(width=UNLIMITED),
}

CONTESTANTS: Mapping[str, Callable[[], Policy]] = {**POLICIES, **LAB_POLICIES, **VARIANTS}
