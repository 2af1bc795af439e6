from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

import loop_samples as samples
from stark.agents.fitting import least_tokens
from stark.core.call import Message
from stark.core.candidate import Candidate
from stark.core.errors import ModelRefused, ProblemError, PromptRefused, UsageError
from stark.core.evaluation import Effort, Evaluation, Unusable
from stark.core.problem import Problem
from stark.core.usage import Budget, Usage, estimated_tokens, utf8_bytes
from stark.languages import language
from stark.store import Store
from stark.strategies import STRATEGIES, strategy
from stark.testing.executor import FakeExecutor
from stark.testing.nodes import CPU, correct
from stark.testing.replies import role_of, team_reply


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


# What a run makes.


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("parallel", [1, 4])
async def test_every_strategy_runs_to_its_budget(store: Store, name: str, parallel: int) -> None:
    run = samples.run(name, attempts=15, parallel=parallel)

    tree, reason = await samples.work(store, run)

    assert "15 attempts made" == reason
    assert list(range(1, 16)) == sorted(node.id for node in tree.nodes)
    assert list(tree.nodes) == store.nodes(run.id)
    assert {} == store.unfinished(run.id)
    asked = {call.role for call in store.calls(run.id)}
    assert asked <= set(strategy(name).team.roles)
    (summary,) = store.summaries()
    assert reason == summary.ended_reason


async def test_the_method_uses_all_its_roles_and_both_kinds_of_plan(store: Store) -> None:
    tree, _ = await samples.work(store, samples.run(attempts=100))

    assert {"code", "debug"} == {node.role for node in tree.nodes}
    assert {"edit", "rewrite"} == {node.plan.action for node in tree.nodes if node.plan}
    assert {"improve", "debug"} == {node.action for node in tree.nodes}


class Uneven(FakeExecutor):
    """Takes longer for some candidates than for others, in turns of the event loop and not in time."""

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        for _ in range(int(candidate.digest[0], 16)):
            await asyncio.sleep(0)
        return await super().evaluate(problem, candidate, effort)


@pytest.mark.parametrize("parallel", [1, 4])
async def test_the_same_seed_and_replies_make_the_same_tree(parallel: int) -> None:
    trees = []
    for _ in range(2):
        with Store.open("sqlite://") as store:
            tree, _ = await samples.work(
                store, samples.run(attempts=20, parallel=parallel), Uneven()
            )
            trees.append(tree.nodes)
    assert trees[0] == trees[1]
    in_order = sorted(trees[0], key=lambda node: node.id)
    assert (parallel == 1) == (in_order == list(trees[0])), "several at once finish out of order"


async def test_another_seed_makes_another_tree() -> None:
    trees = []
    for seed in (1, 2):
        with Store.open("sqlite://") as store:
            tree, _ = await samples.work(store, samples.run(attempts=20, seed=seed))
            trees.append(tree.nodes)
    assert trees[0] != trees[1]


async def test_a_node_says_what_it_cost_and_the_run_what_all_did(store: Store) -> None:
    watch = samples.Notes()

    tree, _ = await samples.work(store, samples.run(attempts=6), watch=watch)

    for node in tree.nodes:
        calls = store.calls("relu-1a2b", node.id)
        assert sum((call.reply.usage for call in calls), Usage()) == node.usage
        assert len(calls) == node.usage.calls > 0
    assert sum((node.usage for node in tree.nodes), Usage()) == watch.usage


async def test_as_many_attempts_are_in_flight_as_the_run_allows(store: Store) -> None:
    watch = samples.Notes()

    run = samples.run("sampling", 9, parallel=3)
    await samples.work(store, run, FakeExecutor(delay_s=0.001), watch=watch)

    in_flight, most = 0, 0
    for event in watch.events:
        in_flight += event.startswith("began") - event.startswith("finished")
        most = max(most, in_flight)
    assert 3 == most


async def test_a_watch_sees_an_attempt_pass_from_role_to_role_to_the_judge(store: Store) -> None:
    watch = samples.Notes()

    await samples.work(
        store, samples.run(attempts=1), FakeExecutor(lambda _: correct(0.5)), watch=watch
    )

    assert [
        "started with 0 nodes",
        "began 1: improve 0",
        "1 plan",
        "1 code",
        "1 judge",
        "finished 1: correct",
        "final check of 1",
        "final check of 1: correct",
    ] == watch.events


# What ends it.


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(attempts=4), "4 attempts made"),
        (Budget(tokens=5_000), r"[\d,]+ of 5,000 tokens used"),
        (Budget(dollars=1.2), r"\$1\.25 of \$1\.20 spent"),
        (Budget(minutes=0.005), r"0\.005 minutes passed"),
    ],
    ids=["attempts", "tokens", "dollars", "minutes"],
)
async def test_each_limit_ends_the_run(store: Store, budget: Budget, reason: str) -> None:
    run = samples.run("sampling", budget=budget)

    tree, ended = await samples.work(store, run, FakeExecutor(delay_s=0.02))

    (summary,) = store.summaries()
    assert ended == summary.ended_reason
    assert re.fullmatch(reason, ended)
    assert 0 < len(tree.nodes) < 30
    assert {} == store.unfinished(run.id)


async def test_an_unknown_price_reaches_no_limit_in_dollars(store: Store) -> None:
    run = samples.run("sampling", budget=Budget(attempts=8, dollars=0.01))

    _, reason = await samples.work(store, run, replies=samples.scripted(dollars=None)[0])

    assert "8 attempts made" == reason


async def test_a_model_that_tells_no_price_lifts_no_limit_of_what_others_told(store: Store) -> None:
    run = samples.run(budget=Budget(dollars=0.7))
    watch = samples.Notes()

    _, reason = await samples.work(store, run, replies=samples.half_priced(), watch=watch)

    assert "$0.75 of $0.70 spent" == reason
    assert watch.usage.dollars is None, "people are told that it is not known"


async def test_prompts_keep_to_the_runs_limit_and_their_calls_say_how(store: Store) -> None:
    least = least_tokens(samples.run().problem, language("triton"))
    run = samples.run(attempts=20, window_tokens=least + 900)

    await samples.work(store, run)

    fits = [call.fit for call in store.calls(run.id)]
    assert all(fit is not None and fit.limit_tokens == least + 900 for fit in fits)
    assert all(fit is not None and not fit.over for fit in fits)
    assert any(fit is not None and fit.cuts for fit in fits)
    for call in store.calls(run.id):
        system, user, *_ = call.messages
        assert call.fit is not None
        assert estimated_tokens(utf8_bytes(system.text + user.text)) == call.fit.tokens


async def test_a_limit_below_the_problem_and_the_guide_is_refused_at_once(store: Store) -> None:
    executor = FakeExecutor()

    with pytest.raises(ProblemError, match=r"alone are about [\d,]+ tokens .*--window-tokens"):
        await samples.work(store, samples.run(window_tokens=100), executor)

    assert [] == executor.evaluated


async def test_unusable_replies_count_as_failed_attempts(store: Store) -> None:
    replies, model = samples.scripted(samples.never_a_plan)
    executor = FakeExecutor()

    tree, reason = await samples.work(store, samples.run(attempts=7), executor, replies)

    assert "7 attempts made" == reason
    assert ["unusable"] * 7 == [node.evaluation.status for node in tree.nodes]
    assert [2] * 7 == [node.usage.calls for node in tree.nodes], "asked once more, then given up"
    assert 14 == len(model.asked)
    assert [] == executor.evaluated


async def test_a_conversation_that_the_model_refuses_fails_its_attempt_alone(store: Store) -> None:
    def objects_at_first(messages: tuple[Message, ...]) -> str:
        if 1 == len(model.asked):
            raise PromptRefused("the conversation is too long for scripted")
        return team_reply(messages)

    replies, model = samples.scripted(objects_at_first)

    tree, reason = await samples.work(store, samples.run(attempts=2), FakeExecutor(), replies)

    assert "2 attempts made" == reason
    first, second = tree.nodes
    assert isinstance(first.evaluation, Unusable)
    assert "the conversation is too long for scripted" == first.evaluation.reason
    assert second.works


async def test_a_plan_stays_where_the_model_refuses_to_code(store: Store) -> None:
    def codes_nothing(messages: tuple[Message, ...]) -> str:
        if "code" == role_of(messages):
            raise PromptRefused("the conversation is too long for scripted")
        return team_reply(messages)

    replies, _ = samples.scripted(codes_nothing)

    tree, _ = await samples.work(store, samples.run(attempts=1), FakeExecutor(), replies)

    (node,) = tree.nodes
    assert ("code", "unusable", 1) == (node.role, node.evaluation.status, node.usage.calls)
    assert node.plan is not None


async def test_a_model_that_answers_no_conversation_stops_the_run(store: Store) -> None:
    def never(messages: tuple[Message, ...]) -> str:
        raise PromptRefused("the conversation is too long for scripted")

    replies, model = samples.scripted(never)

    with pytest.raises(ModelRefused, match="too long for scripted"):
        await samples.work(store, samples.run(attempts=30), FakeExecutor(), replies)

    assert 3 == len(model.asked)


async def test_a_language_that_the_device_cannot_run_is_refused_before_anything_is_paid(
    store: Store,
) -> None:
    run = samples.run()

    with pytest.raises(UsageError, match="do not run on the judge's Invented CPU"):
        await samples.work(store, run, FakeExecutor(device=CPU))
    assert [] == store.calls(run.id)
