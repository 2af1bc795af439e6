"""Search policies that only the lab compares; the product's are in `stark.search.policies`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab.policies.aide import Aide
from lab.policies.beam import Beam
from lab.policies.debug_at_once import DebugAtOnce
from lab.policies.thompson import Thompson
from lab.policies.ucb import Ucb
from stark.search.policies.base import Policy

LAB_POLICIES: Mapping[str, Callable[..., Policy]] = {
    DebugAtOnce.name: DebugAtOnce,
    Aide.name: Aide,
    Beam.name: Beam,
    Ucb.name: Ucb,
    Thompson.name: Thompson,
}
