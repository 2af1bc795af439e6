from __future__ import annotations

from importlib.resources import files
from typing import get_args

import pytest

import loop_samples as samples
from stark.agents.window import RoleName
from stark.core.errors import UsageError
from stark.core.node import ROOT, Node
from stark.optimize import optimize
from stark.search.policies import POLICIES
from stark.store import Store
from stark.strategies import STRATEGIES, strategy
from stark.testing.executor import FakeExecutor
from stark.testing.model import ScriptedModel


def test_the_method_its_baselines_and_its_ablations_are_there() -> None:
    assert ["stark", "sampling", "reflexion", "search-only", "team-only"] == list(STRATEGIES)
    assert "stark" == next(iter(STRATEGIES)), "the first is what a list shows first"


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_made_of_registered_parts(name: str) -> None:
    found = strategy(name)

    assert name == found.name
    assert found.policy == POLICIES[found.policy.name]()
    assert found.team.roles
    assert set(found.team.roles) <= set(get_args(RoleName))
    assert found.summary
    assert "\n" not in found.summary


def test_every_role_of_a_strategy_has_a_prompt() -> None:
    prompts = {prompt.name for prompt in files("stark.agents").joinpath("prompts").iterdir()}

    for role in {role for entry in STRATEGIES.values() for role in entry.team.roles}:
        assert any(name.split(".")[0].split("_")[0] == role for name in prompts)


def test_an_unknown_strategy_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        strategy("best")

    assert all(name in str(caught.value) for name in ("'best'", *STRATEGIES))


def test_a_strategys_team_works_under_another_policy() -> None:
    papers = strategy("stark:epsilon-greedy")

    assert "stark:epsilon-greedy" == papers.name
    assert POLICIES["epsilon-greedy"]() == papers.policy
    assert strategy("stark").team is papers.team
    assert POLICIES["ucb"]() == strategy("search-only:ucb").policy


@pytest.mark.parametrize("name", ["stark:best", "stark:"])
def test_an_unknown_policy_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        strategy(name)

    assert all(policy in str(caught.value) for policy in POLICIES)


async def tree_of(name: str) -> tuple[tuple[Node, ...], ScriptedModel]:
    """What a strategy makes of twelve attempts, and the model that was asked."""
    replies, model = samples.scripted()
    run = samples.run(name)
    with Store.open("sqlite://") as store:
        store.create_run(run)
        executor, watch = FakeExecutor(), samples.Notes()
        tree, _ = await optimize(run, store, executor, replies, watch)
    return tree.nodes, model


async def test_sampling_makes_independent_tries_that_see_nothing_of_each_other() -> None:
    nodes, model = await tree_of("sampling")

    assert {ROOT} == {node.parent for node in nodes}
    assert 1 == len({asked.messages for asked in model.asked})


@pytest.mark.parametrize("name", ["reflexion", "team-only"])
async def test_a_line_has_each_attempt_start_from_the_one_before(name: str) -> None:
    nodes, _ = await tree_of(name)

    assert [node.id - 1 for node in nodes] == [node.parent for node in nodes]


async def test_reflexion_sees_its_last_try_alone() -> None:
    nodes, model = await tree_of("reflexion")
    sources = [node.candidate.source.strip() for node in nodes if node.candidate]

    for attempt, asked in enumerate(model.asked, start=1):
        shown = [number for number, text in enumerate(sources, 1) if text in asked.messages[1].text]
        assert ([attempt - 1] if attempt > 1 else []) == shown


async def test_a_team_without_a_tree_sees_no_other_attempt() -> None:
    _, model = await tree_of("team-only")

    texts = [asked.messages[1].text for asked in model.asked]
    assert {"plan", "code", "debug"} == {text.splitlines()[0].split()[-1] for text in texts}
    assert not any("- Attempt " in text for text in texts)


async def test_search_only_is_one_agent_that_sees_what_was_tried() -> None:
    nodes, model = await tree_of("search-only")

    assert {"solo"} == {node.role for node in nodes}
    assert len({node.parent for node in nodes}) > 1
    assert any("- Attempt 1, from the reference" in asked.messages[1].text for asked in model.asked)
