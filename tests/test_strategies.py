from __future__ import annotations

import re
from importlib.resources import files
from typing import get_args

import pytest

import loop_samples as samples
from stark.agents.window import RoleName
from stark.core.errors import UsageError
from stark.core.node import ROOT, Node
from stark.core.run import Strategy
from stark.search.policies import POLICIES
from stark.search.policies.best_first import BestFirst
from stark.search.policies.epsilon_greedy import EpsilonGreedy
from stark.store import Store
from stark.strategies import STRATEGIES, policy_of, split_strategies, strategy, team_of
from support.model import ScriptedModel
from support.replies import prompt_of


def test_the_method_its_baselines_and_its_ablations_are_there() -> None:
    assert ["stark", "sampling", "reflexion", "search-only", "team-only"] == list(STRATEGIES)


def test_stark_is_the_papers_method_with_the_papers_parameters() -> None:
    found = strategy("stark")

    assert ("epsilon-greedy", "plan-code-debug", True) == (found.policy, found.team, found.memory)
    assert {"epsilon": 0.3, "n_root": 5, "n_child": 3} == found.parameters


def test_the_ablations_change_one_part_each() -> None:
    method, search, team = (strategy(name) for name in ("stark", "search-only", "team-only"))

    assert (method.policy, method.parameters) == (search.policy, search.parameters)
    assert ("solo", True) == (search.team, search.memory)
    assert ("always-root", method.team, False) == (team.policy, team.team, team.memory)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_made_of_registered_parts(name: str) -> None:
    found = strategy(name)

    assert name == found.name
    assert policy_of(found) == POLICIES[found.policy]()
    assert set(team_of(found).roles) <= set(get_args(RoleName))


def test_every_role_of_a_strategy_has_a_prompt() -> None:
    prompts = {prompt.name for prompt in files("stark.agents").joinpath("prompts").iterdir()}

    for role in {role for entry in STRATEGIES.values() for role in team_of(entry).roles}:
        assert any(name.split(".")[0].split("_")[0] == role for name in prompts)


def test_an_unknown_strategy_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        strategy("best")

    assert all(name in str(caught.value) for name in ("'best'", *STRATEGIES))


def test_a_strategys_team_works_under_another_policy() -> None:
    ours = strategy("stark:best-first")

    assert "stark:best-first" == ours.name
    assert BestFirst() == policy_of(ours)
    assert strategy("stark").team == ours.team
    assert BestFirst() == policy_of(strategy("search-only:best-first"))


@pytest.mark.parametrize("name", ["stark:best", "stark:"])
def test_an_unknown_policy_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        strategy(name)

    assert all(policy in str(caught.value) for policy in POLICIES)


@pytest.mark.parametrize(
    "name", ["stark(epsilon=0.2,n_root=8)", "stark:epsilon-greedy(epsilon=0.2, n_root=8)"]
)
def test_parameters_are_given_in_the_name(name: str) -> None:
    found = strategy(name)

    assert {"epsilon": 0.2, "n_root": 8, "n_child": 3} == found.parameters
    assert EpsilonGreedy(epsilon=0.2, n_root=8) == policy_of(found)


def test_a_whole_number_will_do_for_a_share() -> None:
    """The same parameters are stored alike, since runs are named by their content."""
    assert repr(strategy("stark(epsilon=1.0)").parameters) == repr(
        strategy("stark(epsilon=1)").parameters
    )


def test_every_parameter_is_stored_and_survives_json() -> None:
    found = strategy("stark:best-first(width=5)")

    assert found == Strategy.model_validate_json(found.model_dump_json())
    assert BestFirst(width=5) == policy_of(found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stark(eps=0.2)", "'eps'; its parameters are epsilon, n_root, n_child"),
        ("sampling(epsilon=0.2)", "'epsilon'; it has none"),
        ("stark(epsilon=2)", "a probability from 0 to 1, not 2"),
        ("stark(n_root=2.5)", "n_root of the search policy epsilon-greedy must be a whole number"),
        ("stark(epsilon=high)", "'epsilon=high' is not a parameter; write name=number"),
        ("stark(epsilon)", "write name=number"),
        ("stark(epsilon=0.2", "write NAME, NAME:POLICY or NAME:POLICY(parameter=value,...)"),
        ("stark:best-first:ucb", "write NAME, NAME:POLICY"),
    ],
)
def test_wrong_parameters_are_refused_with_what_would_be_right(name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        strategy(name)

    assert words in str(caught.value)


def test_a_list_of_strategies_is_split_outside_of_parentheses() -> None:
    text = "stark, sampling,stark:epsilon-greedy(epsilon=0.2,n_root=8),,stark"

    expected = ["stark", "sampling", "stark:epsilon-greedy(epsilon=0.2,n_root=8)"]
    assert expected == split_strategies(text)


async def tree_of(name: str) -> tuple[tuple[Node, ...], ScriptedModel]:
    """The nodes of a run of twelve attempts, and the model that was asked."""
    replies, model = samples.scripted()
    with Store.open("sqlite://") as store:
        worked = await samples.work(store, samples.run(name), replies=replies)
    return worked.tree.nodes, model


async def test_sampling_makes_independent_tries_that_see_nothing_of_each_other() -> None:
    nodes, model = await tree_of("sampling")

    assert {ROOT} == {node.parent for node in nodes}
    assert 1 == len({asked.messages for asked in model.asked})


async def test_reflexion_starts_each_attempt_from_the_one_before() -> None:
    nodes, _ = await tree_of("reflexion")

    assert [node.id - 1 for node in nodes] == [node.parent for node in nodes]


async def test_reflexion_sees_its_last_try_alone() -> None:
    nodes, model = await tree_of("reflexion")
    sources = [node.candidate.source.strip() for node in nodes if node.candidate]

    first = [
        asked
        for asked in model.asked
        if all(message.speaker != "assistant" for message in asked.messages)
    ]
    for attempt, asked in enumerate(first, start=1):
        shown = [
            number for number, text in enumerate(sources, 1) if text in prompt_of(asked.messages)
        ]
        assert ([attempt - 1] if attempt > 1 else []) == shown


async def test_team_only_makes_independent_attempts_with_the_team() -> None:
    nodes, model = await tree_of("team-only")

    assert {ROOT} == {node.parent for node in nodes}
    texts = [prompt_of(asked.messages) for asked in model.asked]
    assert {"plan", "code"} == {text.splitlines()[0].split()[-1] for text in texts}
    assert not any("- Attempt " in text for text in texts)


async def test_search_only_is_one_agent_that_sees_what_was_tried() -> None:
    nodes, model = await tree_of("search-only")

    assert {"solo"} == {node.role for node in nodes}
    assert len({node.parent for node in nodes}) > 1
    seen = r"- Attempt \d+, from (the reference|attempt \d+)"
    assert any(re.search(seen, prompt_of(asked.messages)) for asked in model.asked)
