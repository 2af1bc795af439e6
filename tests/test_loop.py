from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

import loop_samples as samples
from stark.agents.fitting import least_tokens
from stark.core.call import Message, spent_by_role
from stark.core.candidate import Candidate
from stark.core.errors import ProblemError, PromptRefused, UsageError
from stark.core.evaluation import BuildFailed, Effort, Evaluation
from stark.core.node import Selection
from stark.core.problem import Problem
from stark.core.usage import Budget, estimated_tokens, utf8_bytes
from stark.events import (
    AttemptBegan,
    AttemptFinished,
    Charged,
    CheckBegan,
    CheckFinished,
    Started,
    Stepped,
)
from stark.languages import language
from stark.store import Store
from stark.strategies import STRATEGIES, strategy, team_of
from support.executor import FakeExecutor
from support.nodes import CPU, correct, failure
from support.replies import prompt_of, role_of, team_reply


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


# What a run makes.


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("parallel", [1, 4])
async def test_every_strategy_runs_to_its_budget(store: Store, name: str, parallel: int) -> None:
    run = samples.run(name, attempts=15, parallel=parallel)

    worked = await samples.work(store, run)

    assert "15 attempts made" == worked.reason
    assert list(range(1, 16)) == sorted(node.id for node in worked.tree.nodes)
    assert list(worked.tree.nodes) == store.nodes(run.id)
    assert {} == store.unfinished(run.id)
    asked = {call.role for call in store.calls(run.id)}
    assert asked <= set(team_of(strategy(name)).roles)
    (summary,) = store.summaries()
    assert worked.ended == summary.ended


@pytest.mark.slow
async def test_the_method_uses_all_its_roles_and_both_kinds_of_plan(store: Store) -> None:
    worked = await samples.work(store, samples.run(attempts=100))  # a repair is one in twenty

    assert {"code", "debug"} == {node.role for node in worked.tree.nodes}
    assert {"edit", "rewrite"} == {node.plan.action for node in worked.tree.nodes if node.plan}
    assert {"improve", "debug"} == {node.action for node in worked.tree.nodes}


class Uneven(FakeExecutor):
    """Takes longer for some candidates than for others, in turns of the event loop and not in time."""

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        for _ in range(int(candidate.digest[0], 16)):
            await asyncio.sleep(0)
        return await super().evaluate(problem, candidate, effort)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [1, 4])
async def test_the_same_seed_and_replies_make_the_same_tree(parallel: int) -> None:
    trees = []
    for _ in range(2):
        with Store.open("sqlite://") as store:
            worked = await samples.work(
                store, samples.run(attempts=20, parallel=parallel), Uneven()
            )
            trees.append(worked.tree.nodes)
    assert trees[0] == trees[1]
    in_order = sorted(trees[0], key=lambda node: node.id)
    assert (parallel == 1) == (in_order == list(trees[0])), "several at once finish out of order"


@pytest.mark.slow
async def test_another_seed_makes_another_tree() -> None:
    trees = []
    for seed in (1, 2):
        with Store.open("sqlite://") as store:
            worked = await samples.work(store, samples.run(attempts=20, seed=seed))
            trees.append(worked.tree.nodes)
    assert trees[0] != trees[1]


async def test_the_ledger_and_the_store_agree_on_what_the_run_cost(store: Store) -> None:
    worked = await samples.work(store, samples.run(attempts=6))

    calls = store.calls("relu-1a2b")
    assert spent_by_role(calls) == worked.ledger.spent_by_role == store.spent()["relu-1a2b"]
    assert len(calls) == len(worked.of(Charged)) == worked.ledger.spent.calls
    assert {node.id for node in worked.tree.nodes} == {call.attempt for call in calls}


async def test_as_many_attempts_are_in_flight_as_the_run_allows(store: Store) -> None:
    run = samples.run("sampling", 9, parallel=3)

    worked = await samples.work(store, run, FakeExecutor(delay_s=0.001))

    in_flight, most = 0, 0
    for event in worked.events:
        in_flight += isinstance(event, AttemptBegan) - isinstance(event, AttemptFinished)
        most = max(most, in_flight)
    assert 3 == most


async def test_events_follow_an_attempt_from_role_to_role_to_the_judge(store: Store) -> None:
    worked = await samples.work(
        store, samples.run(attempts=1), FakeExecutor(lambda _: correct(0.5))
    )

    expected = (
        Started,
        AttemptBegan,
        Stepped,
        Charged,
        Stepped,
        Charged,
        Stepped,
        AttemptFinished,
        CheckBegan,
        CheckFinished,
    )
    assert expected == tuple(map(type, worked.events))
    assert [(1, "plan"), (1, "code"), (1, "judge")] == [
        (event.attempt, event.step) for event in worked.of(Stepped)
    ]


@pytest.mark.parametrize("parallel", [1, 4])
async def test_identical_candidates_are_judged_once_and_share_the_evaluation(
    store: Store, parallel: int
) -> None:
    executor = FakeExecutor(lambda _: correct(0.5), delay_s=0.001)

    worked = await samples.work(store, samples.run("sampling", 6, parallel=parallel), executor)

    assert (1, 1) == (len(executor.evaluated), len(executor.promoted))
    nodes = sorted(worked.tree.nodes, key=lambda node: node.id)
    assert [None, 1, 1, 1, 1, 1] == [node.duplicate_of for node in nodes]
    assert all(nodes[0].evaluation == node.evaluation for node in nodes)


async def test_of_identical_candidates_one_counts_as_the_first_though_it_was_killed(
    store: Store,
) -> None:
    """Attempt 2 came first to the judge, and the process was killed before attempt 2 was stored."""
    run = samples.run("sampling", 3)
    await samples.work(store, run)
    (first, second, third) = store.nodes(run.id)
    with Store.open("sqlite://") as killed:
        killed.create_run(run)
        for attempt in (1, 2):
            killed.begin_attempt(run.id, attempt, Selection(parent=0, action="improve"))
        killed.add_node(run.id, first.model_copy(update={"duplicate_of": 2}), 1.0)

        executor = FakeExecutor()
        worked = await samples.work(killed, run, executor)

    assert [2, None, 2] == [node.duplicate_of for node in worked.tree.nodes]
    assert [] == executor.evaluated
    assert all(first.evaluation == node.evaluation for node in worked.tree.nodes)
    assert (1, 1) == (second.duplicate_of, third.duplicate_of)


# What ends it.


@pytest.mark.parametrize(
    ("kind", "limit", "reason"),
    [
        ("attempts", 4, "4 attempts made"),
        ("tokens", 5_000, r"[\d,]+ of 5,000 tokens used"),
        ("dollars", 1.2, r"\$1\.25 of \$1\.20 spent"),
        ("minutes", 0.005, r"0\.005 minutes passed"),
    ],
)
async def test_each_limit_ends_the_run(store: Store, kind: str, limit: float, reason: str) -> None:
    run = samples.run("sampling", budget=Budget(**{kind: limit}))

    replies, _ = samples.scripted(samples.distinct())
    worked = await samples.work(store, run, FakeExecutor(delay_s=0.02), replies)

    (summary,) = store.summaries()
    assert (worked.ended, kind) == (summary.ended, worked.ended.kind)
    assert re.fullmatch(reason, worked.reason)
    assert 0 < len(worked.tree.nodes) < 30
    assert {} == store.unfinished(run.id)


async def test_an_unknown_price_reaches_no_limit_in_dollars(store: Store) -> None:
    run = samples.run("sampling", budget=Budget(attempts=8, dollars=0.01))

    worked = await samples.work(store, run, replies=samples.scripted(dollars=None)[0])

    assert "8 attempts made" == worked.reason


async def test_unpriced_replies_lift_no_limit_on_what_the_others_cost(store: Store) -> None:
    run = samples.run(budget=Budget(dollars=0.7))

    worked = await samples.work(store, run, replies=samples.half_priced())

    assert "$0.75 of $0.70 spent" == worked.reason
    assert 0 < worked.ledger.spent.unpriced_calls < worked.ledger.spent.calls


@pytest.mark.slow
async def test_prompts_keep_to_the_runs_limit_and_their_calls_say_how(store: Store) -> None:
    least = least_tokens(samples.run().problem, language("triton"))
    run = samples.run(attempts=20, window_tokens=least + 650)

    await samples.work(store, run)

    fits = [call.fit for call in store.calls(run.id)]
    assert all(fit is not None and fit.limit_tokens == least + 650 for fit in fits)
    assert all(fit is not None and not fit.over for fit in fits)
    assert any(fit is not None and fit.cuts for fit in fits)
    for call in store.calls(run.id):
        assert call.fit is not None
        sent = call.messages[0].text + prompt_of(call.messages)
        assert 0 <= call.fit.tokens - estimated_tokens(utf8_bytes(sent)) <= 10


async def test_a_limit_below_the_problem_and_the_guide_is_refused_at_once(store: Store) -> None:
    executor = FakeExecutor()

    with pytest.raises(ProblemError, match=r"alone are about [\d,]+ tokens.*larger window_tokens"):
        await samples.work(store, samples.run(window_tokens=100), executor)

    assert [] == executor.evaluated


async def test_unusable_replies_count_as_failed_attempts(store: Store) -> None:
    replies, model = samples.scripted(samples.never_a_plan)
    executor = FakeExecutor()

    worked = await samples.work(store, samples.run(attempts=7), executor, replies)

    assert "7 attempts made" == worked.reason
    assert ["unusable"] * 7 == [node.evaluation.status for node in worked.tree.nodes]
    turns = [(attempt, turn) for attempt in range(1, 8) for turn in (0, 1)]
    assert turns == [(call.attempt, call.turn) for call in store.calls("relu-1a2b")]
    assert 14 == len(model.asked)
    assert [] == executor.evaluated


async def test_a_plan_stays_where_the_model_refuses_to_code(store: Store) -> None:
    def codes_nothing(messages: tuple[Message, ...]) -> str:
        if "code" == role_of(messages):
            raise PromptRefused("the conversation is too long for scripted")
        return team_reply(messages)

    replies, _ = samples.scripted(codes_nothing)

    worked = await samples.work(store, samples.run(attempts=1), FakeExecutor(), replies)

    (node,) = worked.tree.nodes
    assert ("code", "unusable") == (node.role, node.evaluation.status)
    assert node.plan is not None


async def test_a_language_that_the_device_cannot_run_is_refused_before_anything_is_paid(
    store: Store,
) -> None:
    run = samples.run()

    with pytest.raises(UsageError, match="do not run on the judge's Invented CPU"):
        await samples.work(store, run, FakeExecutor(device=CPU))
    assert not store.holds(run.id)


# Builds.


def fails_at_first(candidate: Candidate) -> Evaluation:
    """Builds only what was written after errors."""
    return correct(0.5) if "repaired" in candidate.source else BuildFailed(error="line 3: no")


def repairing(messages: tuple[Message, ...]) -> str:
    """A team whose candidates build once it has seen the errors."""
    reply = team_reply(messages)
    return (
        reply.replace("return x", "return x  # repaired")
        if "line 3: no" in str(messages)
        else reply
    )


@pytest.mark.parametrize("name", STRATEGIES)
async def test_a_failed_build_goes_back_to_its_writer_and_costs_no_attempt(
    store: Store, name: str
) -> None:
    run, executor = samples.run(name, attempts=1), FakeExecutor(fails_at_first)

    worked = await samples.work(store, run, executor, samples.scripted(repairing)[0])

    (node,) = worked.tree.nodes
    assert ("correct", None) == (node.evaluation.status, node.duplicate_of)
    first, second = (candidate.source for candidate in executor.evaluated)
    assert ("repaired" in first, "repaired" in second) == (False, True)
    *_, sent_back, last = store.calls(run.id)
    assert sent_back.role == last.role
    assert "line 3: no" in last.messages[-1].text


async def test_a_build_that_fails_twice_is_judged_as_it_is(store: Store) -> None:
    executor = FakeExecutor(lambda _: failure("build_failed"))

    worked = await samples.work(store, samples.run("sampling", 2), executor)

    nodes = sorted(worked.tree.nodes, key=lambda node: node.id)
    assert ["build_failed", "build_failed"] == [node.evaluation.status for node in nodes]
    assert [None, 1] == [node.duplicate_of for node in nodes]
    assert 4 == len(store.calls("relu-1a2b"))
    assert 2 == len(executor.evaluated), "the second attempt's sources are known"


async def test_nothing_goes_back_once_the_budget_is_spent(store: Store) -> None:
    """The attempt was paid for and judged, so it counts."""
    run = samples.run("sampling", 2, budget={"dollars": 0.25})

    worked = await samples.work(
        store, run, FakeExecutor(fails_at_first), samples.scripted(repairing)[0]
    )

    (node,) = worked.tree.nodes
    assert "build_failed" == node.evaluation.status
    assert "dollars" == worked.ended.kind


async def test_a_replaced_candidate_belongs_to_no_attempt(store: Store) -> None:
    """Attempt 2 ends with the source that attempt 1 replaced."""
    repaired = iter([False, True, False, False])

    def answer(messages: tuple[Message, ...]) -> str:
        reply = team_reply(messages[:3])
        return reply.replace("return x", "return x  # repaired") if next(repaired) else reply

    executor, replies = FakeExecutor(fails_at_first), samples.scripted(answer)[0]

    worked = await samples.work(store, samples.run("sampling", 2), executor, replies)

    first, second = sorted(worked.tree.nodes, key=lambda node: node.id)
    assert (True, False) == (first.works, second.works)
    assert second.duplicate_of is None
    assert 2 == len(executor.evaluated)
