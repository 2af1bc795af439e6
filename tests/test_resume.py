"""A run that was stopped, by whatever, loses nothing that was paid for and goes on where it stood."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import loop_samples as samples
from stark.core.call import Call, Message
from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable, ModelRefused, StoreError
from stark.core.evaluation import Evaluation, Incorrect
from stark.core.usage import Budget
from stark.store import Store
from stark.testing.executor import FakeExecutor, invented
from stark.testing.nodes import correct


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def refuses_after(replies: int) -> Callable[[tuple[Message, ...]], str]:
    left = iter(range(replies))

    def answer(messages: tuple[Message, ...]) -> str:
        if next(left, None) is None:
            raise ModelRefused("the key is used up: add credit")
        return samples.team_reply(messages)

    return answer


def unavailable_after(candidates: int) -> Callable[[Candidate], Evaluation]:
    left = iter(range(candidates))

    def judge(candidate: Candidate) -> Evaluation:
        if next(left, None) is None:
            raise JudgeUnavailable("no judge answers: start one")
        return invented(candidate)

    return judge


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize("failing", ["model", "judge"])
async def test_a_failure_of_ours_is_raised_and_the_run_goes_on_later(
    store: Store, failing: str, parallel: int
) -> None:
    run = samples.run(attempts=10, parallel=parallel)
    if failing == "model":
        with pytest.raises(ModelRefused):
            await samples.work(store, run, replies=samples.scripted(refuses_after(9))[0])
    else:
        with pytest.raises(JudgeUnavailable):
            await samples.work(store, run, FakeExecutor(unavailable_after(4)))

    kept, calls = store.nodes(run.id), store.calls(run.id)
    assert 0 < len(kept) < 10
    assert 0 < len(store.unfinished(run.id)) <= parallel
    (summary,) = store.summaries()
    assert summary.ended_reason is None
    tree, reason = await samples.work(store, run)
    assert "10 attempts made" == reason
    assert kept == list(tree.nodes[: len(kept)])
    assert_kept(calls, store.calls(run.id))


async def test_what_was_judged_beside_a_failure_is_kept(store: Store) -> None:
    """Three attempts end in the same turn of the event loop, the second by an exception."""
    fates = iter(["good", "bad", "good"])

    def judge(candidate: Candidate) -> Evaluation:
        if next(fates) == "bad":
            raise JudgeUnavailable("no judge answers: start one")
        return correct(0.5)

    run = samples.run("sampling", 3, parallel=3)
    with pytest.raises(JudgeUnavailable):
        await samples.work(store, run, FakeExecutor(judge))

    assert [1, 3] == [node.id for node in store.nodes(run.id)]
    assert [2] == list(store.unfinished(run.id))


async def test_a_resumed_run_asks_for_no_stored_reply_again(store: Store) -> None:
    run = samples.run(attempts=1)
    with pytest.raises(JudgeUnavailable):
        await samples.work(store, run, FakeExecutor(unavailable_after(0)))
    assert [(1, 0), (1, 1)] == [(call.attempt, call.turn) for call in store.calls(run.id)]

    replies, model = samples.scripted()
    tree, _ = await samples.work(store, run, FakeExecutor(lambda _: correct(0.5)), replies)

    assert [] == model.asked
    (node,) = tree.nodes
    assert 2 == node.usage.calls, "what was paid for earlier is the attempt's cost all the same"
    assert 0.5 == node.usage.dollars


async def test_a_resumed_run_asks_on_from_a_plan_that_was_stored(store: Store) -> None:
    run = samples.run(attempts=1)
    with pytest.raises(ModelRefused):
        await samples.work(store, run, replies=samples.scripted(refuses_after(1))[0])

    replies, model = samples.scripted()
    tree, _ = await samples.work(store, run, replies=replies)

    assert ["code"] == [samples.role_of(asked.messages) for asked in model.asked]
    (plan_call, code_call) = store.calls(run.id)
    (node,) = tree.nodes
    assert node.plan is not None
    assert node.plan.strategy in plan_call.reply.text
    assert node.plan.strategy in code_call.messages[1].text


async def test_the_budget_holds_over_all_sessions(store: Store) -> None:
    run = samples.run("sampling", budget=Budget(dollars=1.0))
    with pytest.raises(ModelRefused):
        await samples.work(store, run, replies=samples.scripted(refuses_after(3))[0])

    replies, model = samples.scripted()
    _, reason = await samples.work(store, run, replies=replies)

    assert "$1.00 of $1.00 spent" == reason
    assert 1 == len(model.asked)


async def test_what_was_told_before_counts_beside_what_was_not(store: Store) -> None:
    run = samples.run(budget=Budget(dollars=0.7))
    _, first = await samples.work(store, run, replies=samples.half_priced())
    begun = len(store.selections(run.id))

    _, again = await samples.work(store, run, replies=samples.half_priced())

    assert first == again == "$0.75 of $0.70 spent"
    assert begun == len(store.selections(run.id))


async def test_an_interrupted_run_makes_the_tree_that_it_would_have_made() -> None:
    run = samples.run(attempts=16)
    with Store.open("sqlite://") as whole, Store.open("sqlite://") as broken:
        await samples.work(whole, run)
        for replies in (3, 1, 4, 2, 7):
            with pytest.raises(ModelRefused):
                await samples.work(broken, run, replies=samples.scripted(refuses_after(replies))[0])
        await samples.work(broken, run)
        assert whole.nodes(run.id) == broken.nodes(run.id)
        assert whole.calls(run.id) == broken.calls(run.id)


async def test_a_run_that_ended_goes_on_with_a_larger_budget(store: Store) -> None:
    run = samples.run(attempts=5)
    first, _ = await samples.work(store, run)
    reference = store.reference(run.id)

    store.set_budget(run.id, Budget(attempts=9))
    another_device = FakeExecutor(warnings=("measured again",))
    tree, reason = await samples.work(store, store.run(run.id), another_device)

    assert "9 attempts made" == reason
    assert first.nodes == tree.nodes[:5]
    assert 9 == len(store.nodes(run.id))
    assert reference == store.reference(run.id), "it is measured once"


@pytest.mark.parametrize("attempts", [6, 12])
async def test_a_final_check_that_was_interrupted_goes_on_with_its_leaders(
    store: Store, attempts: int
) -> None:
    """With a larger budget the run goes on, and what did not hold leads nothing any more."""

    def dies_in_the_second_check(candidate: Candidate) -> Evaluation:
        if len(executor.promoted) == 1:
            return Incorrect(error="wrong at times")
        if executor.promoted:
            raise JudgeUnavailable("no judge answers: start one")
        return correct(1 / len(executor.evaluated))  # each faster than the one before

    run, executor = samples.run(attempts=6), FakeExecutor(dies_in_the_second_check)
    with pytest.raises(JudgeUnavailable):
        await samples.work(store, run, executor)
    assert [6] == list(store.promotions(run.id))
    run = run.model_copy(update={"budget": Budget(attempts=attempts)})

    tree, _ = await samples.work(store, run, FakeExecutor(lambda _: Incorrect(error="wrong")))

    assert ({5, 6} if attempts == 6 else {4, 5, 6}) == set(store.promotions(run.id))
    assert (attempts == 6) == tree.works(6)


async def test_a_run_that_goes_on_has_not_ended(store: Store) -> None:
    run = samples.run(attempts=2)
    await samples.work(store, run)

    larger = samples.run(attempts=4)
    with pytest.raises(ModelRefused):
        await samples.work(store, larger, replies=samples.scripted(refuses_after(0))[0])

    (summary,) = store.summaries()
    assert summary.ended_reason is None


async def test_a_finished_run_asks_nothing_and_keeps_its_reason(store: Store) -> None:
    run = samples.run(attempts=3)
    await samples.work(store, run)
    replies, model = samples.scripted()

    tree, reason = await samples.work(store, run, replies=replies)

    assert ("3 attempts made", 3, []) == (reason, len(tree.nodes), model.asked)


@pytest.mark.parametrize("parallel", [1, 4])
async def test_cancelling_ends_all_work_and_loses_nothing(store: Store, parallel: int) -> None:
    class Impatient(samples.Notes):
        def stepped(self, attempt: int, step: str) -> None:
            if (attempt, step) == (9, "judge"):
                working.cancel()

    run = samples.run("sampling", attempts=30, parallel=parallel)
    replies, model = samples.scripted()
    executor = FakeExecutor(delay_s=0.001)
    working = asyncio.create_task(samples.work(store, run, executor, replies, Impatient()))
    with pytest.raises(asyncio.CancelledError):
        await working

    assert {asyncio.current_task()} == asyncio.all_tasks()
    kept, calls = store.nodes(run.id), store.calls(run.id)
    assert len(kept) >= 9 - parallel
    assert 9 in store.unfinished(run.id)
    assert len(model.asked) == len(calls)
    tree, _ = await samples.work(store, run, replies=replies)
    assert 30 == len(tree.nodes)
    assert kept == list(tree.nodes[: len(kept)])
    assert 30 == len(model.asked), "one reply each: no stored one was asked for again"
    assert_kept(calls, store.calls(run.id))


async def test_what_is_judged_when_the_run_is_cancelled_is_kept(store: Store) -> None:
    run = samples.run("sampling", attempts=1)

    def cancelling(candidate: Candidate) -> Evaluation:
        working.cancel()
        return correct(0.5)

    working = asyncio.create_task(samples.work(store, run, FakeExecutor(cancelling)))
    with pytest.raises(asyncio.CancelledError):
        await working

    assert [1] == [node.id for node in store.nodes(run.id)]


def test_an_interrupt_from_the_keyboard_ends_the_run_and_it_goes_on_later(tmp_path: Path) -> None:
    run = samples.run("sampling", attempts=12, parallel=2)
    judged: list[Candidate] = []

    def interrupting(candidate: Candidate) -> Evaluation:
        judged.append(candidate)
        if len(judged) == 5:
            signal.raise_signal(signal.SIGINT)
        return correct(0.5)

    with Store.open(f"sqlite:///{tmp_path}/stark.db") as store:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(samples.work(store, run, FakeExecutor(interrupting, delay_s=0.001)))
        kept = store.nodes(run.id)
        assert 4 <= len(kept) < 12
        tree, _ = asyncio.run(samples.work(store, run))
        assert kept == list(tree.nodes[: len(kept)])
        assert 12 == len(tree.nodes)


async def test_a_second_process_on_the_same_run_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/stark.db"
    run = samples.run("sampling", attempts=3)
    with Store.open(url) as one, Store.open(url) as other:
        one.create_run(run)
        with one.exclusive(run.id):
            replies, model = samples.scripted()
            with pytest.raises(StoreError, match="worked on by another process"):
                await samples.work(other, run, replies=replies)
            assert [] == model.asked
        tree, _ = await samples.work(other, run)
        assert 3 == len(tree.nodes)


def assert_kept(earlier: list[Call], later: list[Call]) -> None:
    """Every call that was stored is still there, unchanged."""
    now = {(call.attempt, call.turn): call for call in later}
    assert earlier == [now[call.attempt, call.turn] for call in earlier]
