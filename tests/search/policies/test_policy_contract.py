from __future__ import annotations

import random

import pytest

from stark.core.node import ROOT, Selection
from stark.search.policies import POLICIES
from stark.search.tree import Tree
from support import policies as contract
from support.nodes import failing
from support.policies import CONTRACT, Rule


@pytest.mark.parametrize("rule", CONTRACT, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", POLICIES)
def test_every_registered_policy_keeps_the_contract(name: str, rule: Rule) -> None:
    for seed in range(8):
        rule(POLICIES[name](), seed)


def test_policies_are_registered_under_their_own_names() -> None:
    assert list(POLICIES) == [make().name for make in POLICIES.values()]


class Broken:
    """A policy with the given fault."""

    name = "broken"

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.asked = 0
        self.first: Tree | None = None

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        self.asked += 1
        match self.fault:
            case "wrong action":
                return Selection(parent=ROOT, action="debug")
            case "unusable parent":
                unusable = [node.id for node in tree.nodes if node.candidate is None]
                return Selection(parent=unusable[0], action="debug") if unusable else None
            case "idle":
                return None
            case "meddles":
                tree.add(failing(tree.next_attempt))
            case "remembers":
                return Selection(parent=ROOT, action="improve") if self.asked % 2 else None
            case "knows trees by object":
                self.first = self.first or tree
                if tree is not self.first:
                    return None
        return Selection(parent=ROOT, action="improve")


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("wrong action", contract.selects_what_can_be_started),
        ("unusable parent", contract.selects_what_can_be_started),
        ("idle", contract.never_starves),
        ("idle", contract.carries_a_run_through),
        ("meddles", contract.changes_nothing),
        ("remembers", contract.depends_on_tree_and_seed_alone),
        ("knows trees by object", contract.survives_replay),
    ],
)
def test_the_contract_catches(fault: str, rule: Rule) -> None:
    with pytest.raises(AssertionError):
        for seed in range(8):
            rule(Broken(fault), seed)
