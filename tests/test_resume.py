"""A run that was stopped, by whatever, loses nothing that was paid for and goes on where it stood."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import loop_samples as samples
from stark.core.call import Call, Message
from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable, ModelRefused, ModelUnreachable, StoreError
from stark.core.evaluation import Evaluation
from stark.core.node import Selection
from stark.core.usage import Budget, Cost
from stark.store import Store
from support.executor import FakeExecutor, invented
from support.nodes import correct, failure
from support.replies import prompt_of


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
    assert store.ended(run.id) is None
    worked = await samples.work(store, run)
    assert "10 attempts made" == worked.reason
    assert kept == list(worked.tree.nodes[: len(kept)])
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
        await samples.work(store, run, FakeExecutor(judge), samples.scripted(samples.distinct())[0])

    assert [1, 3] == [node.id for node in store.nodes(run.id)]
    assert [2] == list(store.unfinished(run.id))


async def test_what_was_judged_while_a_failure_came_to_light_is_kept(store: Store) -> None:
    failed, told, judged = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Staggered(FakeExecutor):
        async def evaluate(self, *args: Any, **options: Any) -> Evaluation:
            if not failed.is_set():
                failed.set()
                raise JudgeUnavailable("no judge answers: start one")
            await told.wait()
            judged.set()
            return correct(0.5)

    async def slow_disk() -> None:
        if failed.is_set():
            told.set()
            await judged.wait()
            for _ in range(20):  # until the other attempt is a node
                await asyncio.sleep(0)

    store._database.settled = slow_disk  # type: ignore[method-assign]
    run = samples.run("sampling", 2, parallel=2)
    with pytest.raises(JudgeUnavailable):
        await samples.work(store, run, Staggered(), samples.scripted(samples.distinct())[0])

    assert [2] == [node.id for node in store.nodes(run.id)]


async def test_a_resumed_run_asks_for_no_stored_reply_again(store: Store) -> None:
    run = samples.run(attempts=1)
    with pytest.raises(JudgeUnavailable):
        await samples.work(store, run, FakeExecutor(unavailable_after(0)))
    assert [(1, 0), (1, 1)] == [(call.attempt, call.turn) for call in store.calls(run.id)]

    replies, model = samples.scripted()
    worked = await samples.work(store, run, FakeExecutor(lambda _: correct(0.5)), replies)

    assert [] == model.asked
    assert [1] == [node.id for node in worked.tree.nodes]
    spent = worked.ledger.spent
    assert (2, 0.5) == (spent.calls, spent.dollars), "earlier sessions count"


async def test_a_candidate_that_was_sent_back_is_not_judged_again(store: Store) -> None:
    """The process was killed after the second reply, before its evaluation."""
    run = samples.run("sampling", 1)
    executor = FakeExecutor(lambda _: failure("build_failed"))
    await samples.work(store, run, executor)
    first, second = (candidate.source for candidate in executor.evaluated)
    with Store.open("sqlite://") as killed:
        killed.create_run(run)
        killed.begin_attempt(run.id, 1, Selection(parent=0, action="improve"))
        for call in store.calls(run.id):
            asked = killed.begin_call(run.id, 1, call.role, call.reply.model, Cost())
            killed.add_call(run.id, call, asked, 1.0)
        resumed = FakeExecutor()

        worked = await samples.work(killed, run, resumed)

        assert store.calls(run.id) == killed.calls(run.id)
    (node,) = worked.tree.nodes
    assert node.candidate is not None
    assert first != second == node.candidate.source
    assert [second] == [candidate.source for candidate in resumed.evaluated]


async def test_a_resumed_run_asks_on_from_a_plan_that_was_stored(store: Store) -> None:
    run = samples.run(attempts=1)
    with pytest.raises(ModelRefused):
        await samples.work(store, run, replies=samples.scripted(refuses_after(1))[0])

    replies, model = samples.scripted()
    worked = await samples.work(store, run, replies=replies)

    assert ["code"] == [samples.role_of(asked.messages) for asked in model.asked]
    (plan_call, code_call) = store.calls(run.id)
    (node,) = worked.tree.nodes
    assert node.plan is not None
    assert node.plan.strategy in plan_call.reply.text
    assert node.plan.strategy in prompt_of(code_call.messages)


async def test_the_budget_holds_over_all_sessions(store: Store) -> None:
    run = samples.run("sampling", budget=Budget(dollars=1.0))
    with pytest.raises(ModelRefused):
        await samples.work(store, run, replies=samples.scripted(refuses_after(3))[0])

    replies, model = samples.scripted()
    worked = await samples.work(store, run, replies=replies)

    assert "$1.00 of $1.00 spent" == worked.reason
    assert 1 == len(model.asked)


async def test_priced_and_unpriced_calls_of_earlier_sessions_count(store: Store) -> None:
    run = samples.run(budget=Budget(dollars=0.7))
    first = await samples.work(store, run, replies=samples.half_priced())
    begun = len(store.selections(run.id))

    again = await samples.work(store, run, replies=samples.half_priced())

    assert first.reason == again.reason == "$0.75 of $0.70 spent"
    assert begun == len(store.selections(run.id))


@pytest.mark.slow
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
    first = await samples.work(store, run)
    reference = store.reference(run.id)

    store.reconfigure(samples.run(attempts=9))
    another_device = FakeExecutor(warnings=("measured again",))
    worked = await samples.work(store, store.run(run.id), another_device)

    assert "9 attempts made" == worked.reason
    assert first.tree.nodes == worked.tree.nodes[:5]
    assert 9 == len(store.nodes(run.id))
    assert reference == store.reference(run.id), "it is measured once"


async def test_active_minutes_count_over_all_sessions(store: Store) -> None:
    """A resumed run that forgot them could go on forever, a few minutes at a time."""
    run = samples.run("sampling", budget=Budget(minutes=5))
    noted = [0.0]
    for _ in range(2):
        unreachable = samples.scripted(delay_s=0.02, error=ModelUnreachable("no answer"))
        with pytest.raises(ModelUnreachable):
            await samples.work(store, run, replies=unreachable[0])
        noted.append(store.elapsed_s(run.id))
        assert noted[-1] >= noted[-2] + 0.02, "though nothing came of it"

    store.note_elapsed(run.id, 5 * 60.0)
    replies, model = samples.scripted()
    worked = await samples.work(store, run, replies=replies)

    assert "5 minutes passed" == worked.reason
    assert 1 == len(model.asked), "an attempt that had begun is finished"


async def test_what_calls_of_earlier_sessions_cost_is_expected_of_new_ones(store: Store) -> None:
    """The model names no price, so a run that forgot would send eight at once."""
    run = samples.run("sampling", parallel=8, budget=Budget(dollars=1.0))
    one = samples.run("sampling", parallel=1, budget=Budget(dollars=1.0))
    with pytest.raises(ModelRefused):
        await samples.work(store, one, replies=samples.scripted(refuses_after(1))[0])
    replies, model = samples.scripted(delay_s=0.001)

    worked = await samples.work(store, run, replies=replies)

    assert (3, 1.0) == (len(model.asked), worked.ledger.spent.dollars)


async def test_time_before_a_kill_counts_up_to_the_last_reply(store: Store) -> None:
    run = samples.run(attempts=1)
    noted: list[float] = []

    async def before(attempt: int, turn: int) -> None:
        noted.append(store.elapsed_s(run.id))
        await asyncio.sleep(0.02)

    await samples.work(store, run, replies=samples.Arranged(before))

    assert 0.0 == noted[0] < 0.02 <= noted[1]


async def test_a_run_that_goes_on_has_not_ended(store: Store) -> None:
    run = samples.run(attempts=2)
    await samples.work(store, run)

    larger = samples.run(attempts=4)
    with pytest.raises(ModelRefused):
        await samples.work(store, larger, replies=samples.scripted(refuses_after(0))[0])

    assert store.ended(run.id) is None


async def test_a_finished_run_asks_nothing_and_keeps_its_reason(store: Store) -> None:
    run = samples.run(attempts=3)
    await samples.work(store, run)
    replies, model = samples.scripted()

    worked = await samples.work(store, run, replies=replies)

    assert ("3 attempts made", 3, []) == (worked.reason, len(worked.tree.nodes), model.asked)


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
        worked = await samples.work(other, run)
        assert 3 == len(worked.tree.nodes)


def assert_kept(earlier: list[Call], later: list[Call]) -> None:
    """Every call that was stored is still there, unchanged."""
    now = {(call.attempt, call.turn): call for call in later}
    assert earlier == [now[call.attempt, call.turn] for call in earlier]
