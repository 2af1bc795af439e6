from __future__ import annotations

import pytest
from lab.contestants import CONTESTANTS
from lab.policies import LAB_POLICIES

from stark.search.policies import POLICIES
from support.policies import CONTRACT, Rule


@pytest.mark.slow
@pytest.mark.parametrize("rule", CONTRACT, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", LAB_POLICIES)
def test_every_lab_policy_keeps_the_contract(name: str, rule: Rule) -> None:
    for seed in range(8):
        rule(LAB_POLICIES[name](), seed)


def test_the_lab_registers_its_policies_under_their_own_names() -> None:
    assert list(LAB_POLICIES) == [make().name for make in LAB_POLICIES.values()]


def test_the_lab_compares_the_products_policies_with_its_own() -> None:
    assert not set(POLICIES) & set(LAB_POLICIES)
    assert {*POLICIES, *LAB_POLICIES} <= set(CONTESTANTS)
