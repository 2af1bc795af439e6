"""Models that refuse, cut off, hang, are unreachable, or are stopped in the middle: no run and no reply is lost.

Whatever happens, every reply that arrived is stored and charged exactly once, and a resumed run finishes all the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import loop_samples as samples
from loop_samples import Worked
from stark.core.call import Message, Reply, spent_by_role
from stark.core.candidate import Candidate
from stark.core.errors import ModelRefused, ModelUnreachable, PromptRefused
from stark.core.evaluation import Evaluation, Unusable
from stark.core.run import Run
from stark.core.usage import Budget
from stark.events import AttemptBegan, Charged, Draining, Event, Started, Stepped
from stark.ledger import Ledger
from stark.models.retry import Backoff, Transient
from stark.store import Store
from support.executor import FakeExecutor
from support.model import ScriptedModel
from support.nodes import correct
from support.replies import role_of, team_reply


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


class Provider(ScriptedModel):
    """A scripted model that counts the replies which it sent: those are paid for."""

    def __init__(
        self, script: Callable[[tuple[Message, ...]], str] = team_reply, **options: Any
    ) -> None:
        super().__init__(script, **({"dollars": 0.25} | options))
        self.replied = 0
        self._questions = asyncio.Semaphore(0)

    async def ask(self, *args: Any, **options: Any) -> Reply:
        self._questions.release()
        reply = await super().ask(*args, **options)
        self.replied += 1
        return reply

    async def received(self, questions: int) -> None:
        """Return when so many questions have come."""
        for _ in range(questions):
            await self._questions.acquire()


def replies_of(provider: ScriptedModel) -> samples.LiveReplies:
    return samples.replies_of(dict.fromkeys(samples.TEMPERATURES, provider))


def check_paid_once(store: Store, run: Run, *providers: Provider) -> None:
    """Each reply of all sessions is stored once, with its price, and nothing else is on the bill."""
    calls = store.calls(run.id)
    assert sum(provider.replied for provider in providers) == len(calls)
    assert len({(call.attempt, call.turn) for call in calls}) == len(calls)
    assert [] == store.lost_calls(run.id)
    assert store.spent(run.id).get(run.id, {}) == spent_by_role(calls)


async def check_finished(store: Store, run: Run, *earlier: Provider) -> Worked:
    """A resumed run finishes; it asks for no stored reply, and its ledger knows what all sessions cost."""
    calls, nodes = store.calls(run.id), store.nodes(run.id)
    provider = Provider()

    worked = await samples.work(store, run, replies=replies_of(provider))

    assert f"{run.config.budget.attempts} attempts made" == worked.reason
    assert ({}, worked.ended) == (store.unfinished(run.id), store.ended(run.id))
    assert nodes == list(worked.tree.nodes[: len(nodes)])
    assert {(call.attempt, call.turn): call for call in calls}.items() <= {
        (call.attempt, call.turn): call for call in store.calls(run.id)
    }.items()
    check_paid_once(store, run, *earlier, provider)
    assert store.spent(run.id)[run.id] == worked.ledger.spent_by_role
    return worked


# One prompt at a time.


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize("every", [3, 5])
async def test_a_refused_prompt_makes_its_attempt_unusable_and_the_run_goes_on(
    store: Store, every: int, parallel: int
) -> None:
    run = samples.run(attempts=10, parallel=parallel)
    provider = Provider(error=PromptRefused("content policy"), error_every=every)

    worked = await samples.work(store, run, replies=replies_of(provider))

    assert "10 attempts made" == worked.reason
    refused = [
        node.id
        for node in worked.tree.nodes
        if node.evaluation == Unusable(reason="content policy")
    ]
    # An attempt whose prompt for a repair is refused keeps what it had.
    failed = provider.asked[every - 1 :: every]
    first = [each for each in failed if "does not build" not in each.messages[-1].text]
    assert len(first) == len(refused) > 0
    assert any(node.works for node in worked.tree.nodes)
    check_paid_once(store, run, provider)


async def test_a_plan_stays_where_the_model_refuses_to_code(store: Store) -> None:
    def codes_nothing(messages: tuple[Message, ...]) -> str:
        if "code" == role_of(messages):
            raise PromptRefused("too long")
        return team_reply(messages)

    worked = await samples.work(
        store, samples.run(attempts=1), replies=replies_of(Provider(codes_nothing))
    )

    (node,) = worked.tree.nodes
    assert ("code", "unusable") == (node.role, node.evaluation.status)
    assert node.plan is not None


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [1, 2, 8])
async def test_three_refusals_before_any_answer_stop_the_run(store: Store, parallel: int) -> None:
    run = samples.run("team-only", attempts=30, parallel=parallel)
    provider = Provider(error=PromptRefused("too long"))

    with pytest.raises(ModelRefused, match="too long"):
        await samples.work(store, run, replies=replies_of(provider))

    assert max(3, parallel) <= len(provider.asked) < 3 + parallel
    assert ([], {}, None) == (store.calls(run.id), store.spent(run.id), store.ended(run.id))
    await check_finished(store, run, provider)


async def test_a_truncated_reply_is_asked_for_again_with_room(store: Store) -> None:
    def long(messages: tuple[Message, ...]) -> str:
        return "After much thought: \n" * 30 + team_reply(messages)

    provider = Provider(long, max_output_tokens=150, dollars=None, price=samples.PRICE)
    run = samples.run("sampling", attempts=3)

    worked = await samples.work(store, run, replies=replies_of(provider))

    assert [None, 300] * 3 == provider.limits
    assert [True, False] * 3 == [call.reply.truncated for call in store.calls(run.id)]
    assert all(node.candidate is not None for node in worked.tree.nodes)
    check_paid_once(store, run, provider)


async def test_replies_that_stay_truncated_cost_their_attempts_alone(store: Store) -> None:
    run = samples.run(attempts=3, parallel=2)
    provider = Provider(lambda messages: "x" * 10_000, max_output_tokens=50)

    worked = await samples.work(store, run, replies=replies_of(provider))

    assert ["unusable"] * 3 == [node.evaluation.status for node in worked.tree.nodes]
    assert 6 == provider.replied
    check_paid_once(store, run, provider)


# Models out of reach.


@pytest.mark.parametrize(
    "error", [ModelUnreachable("no answer in 900 s"), ModelRefused("no credit")]
)
@pytest.mark.parametrize("strategy", ["team-only", "sampling"])
async def test_a_failure_lets_the_calls_beside_it_finish_and_stores_them(
    store: Store, strategy: str, error: Exception
) -> None:
    """The third question fails at once, while seven others take their time."""
    run = samples.run(strategy, attempts=12, parallel=8)
    provider, asked = Provider(delay_s=0.02), 0

    async def before(attempt: int, turn: int) -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise error

    with pytest.raises(type(error)):
        await samples.work(store, run, replies=Delayed(before, provider))

    assert 7 == provider.replied
    check_paid_once(store, run, provider)
    assert None is store.ended(run.id)
    await check_finished(store, run, provider)


class Delayed(samples.Arranged):
    """Replies of a provider, each after what `before` does."""

    def __init__(self, before: Callable[[int, int], Awaitable[object]], provider: Provider) -> None:
        super().__init__(before)
        self._replies = replies_of(provider)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_failures_at_random_moments_lose_nothing(store: Store, seed: int) -> None:
    run, chance = samples.run(attempts=10, parallel=3), random.Random(seed)
    providers: list[Provider] = []

    async def before(attempt: int, turn: int) -> None:
        await asyncio.sleep(chance.uniform(0, 0.002))
        if chance.random() < 0.15:
            raise ModelUnreachable("timed out")

    for _ in range(4):
        providers.append(provider := Provider())
        try:
            await samples.work(store, run, replies=Delayed(before, provider))
        except ModelUnreachable:
            assert None is store.ended(run.id)
        check_paid_once(store, run, *providers)

    await check_finished(store, run, *providers)


class Limited(Provider):
    """A provider that answers 429 to all but one in `every` requests, and its client, which tries again."""

    def __init__(self, every: int, tries: int) -> None:
        super().__init__()
        self.requests, self.waited_s = 0, list[float]()
        self._every = every
        self._backoff = Backoff(tries=tries, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        await asyncio.sleep(0)

    async def ask(self, *args: Any, **options: Any) -> Reply:
        async def request() -> Reply:
            self.requests += 1
            if self.requests % self._every:
                raise Transient("answered 429", retry_after_s=7.0)
            return await super(Limited, self).ask(*args, **options)

        return await self._backoff.run(request)


async def test_a_storm_of_429_delays_a_run_and_costs_nothing(store: Store) -> None:
    run = samples.run(attempts=12, parallel=8)
    provider = Limited(every=5, tries=50)

    worked = await samples.work(store, run, replies=replies_of(provider))

    assert "12 attempts made" == worked.reason
    assert provider.requests == provider.replied + len(provider.waited_s)
    assert len(provider.waited_s) > 3 * provider.replied
    assert min(provider.waited_s) >= 7.0, "as long as the provider asked for"
    check_paid_once(store, run, provider)


@pytest.mark.slow
async def test_a_storm_that_outlasts_the_retries_stops_the_run_which_can_be_resumed(
    store: Store,
) -> None:
    run = samples.run(attempts=12, parallel=8)
    provider = Limited(every=30, tries=5)

    with pytest.raises(ModelUnreachable, match="answered 429, after 5 tries"):
        await samples.work(store, run, replies=replies_of(provider))

    check_paid_once(store, run, provider)
    await check_finished(store, run, provider)


# Ctrl-C.


@pytest.mark.slow
async def test_a_cancelled_run_waits_for_the_eight_calls_in_flight(store: Store) -> None:
    run = samples.run("sampling", attempts=20, parallel=8)
    provider = Provider(delay_s=0.2)
    working = asyncio.create_task(samples.work(store, run, replies=replies_of(provider)))
    await provider.received(8)
    assert (8, 0) == (len(provider.asked), provider.replied)

    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert {asyncio.current_task()} == asyncio.all_tasks()
    assert (8, 8) == (len(provider.asked), provider.replied)
    assert list(range(1, 9)) == [call.attempt for call in store.calls(run.id)]
    check_paid_once(store, run, provider)
    worked = await check_finished(store, run, provider)
    assert 20 == worked.ledger.spent.calls, "one reply each, over both sessions"


@pytest.mark.slow
async def test_a_cancelled_run_says_that_it_waits_and_asks_nothing_more(store: Store) -> None:
    run = samples.run(attempts=20, parallel=4)
    provider, events = Provider(delay_s=0.1), list[Event]()
    working = asyncio.create_task(
        samples.work(store, run, replies=replies_of(provider), on_event=events.append)
    )
    await provider.received(4)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert [Started, *[AttemptBegan] * 4] == [
        type(event) for event in events if isinstance(event, Started | AttemptBegan)
    ]
    assert Draining() in events
    assert 4 == events.count(Charged()) == len(provider.asked)
    await check_finished(store, run, provider)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_cancelled_at_random_moments_a_run_loses_nothing(store: Store, seed: int) -> None:
    run, chance = samples.run(attempts=12, parallel=4), random.Random(seed)
    providers: list[Provider] = []
    for _ in range(3):
        providers.append(provider := Provider(samples.distinct(), delay_s=0.002))
        executor = FakeExecutor(delay_s=0.001)
        working = asyncio.create_task(samples.work(store, run, executor, replies_of(provider)))
        await asyncio.wait({working}, timeout=chance.uniform(0, 0.06))
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        if store.holds(run.id) and store.calls(run.id):
            check_paid_once(store, run, *providers)

    await check_finished(store, run, *providers)


async def test_replies_that_are_paid_for_are_not_used_once_the_run_is_cancelled(
    store: Store,
) -> None:
    def never(_: Candidate) -> Evaluation:
        raise AssertionError("no candidate is judged any more")

    run = samples.run("sampling", attempts=2, parallel=2)
    provider = Provider(delay_s=0.01)
    working = asyncio.create_task(
        samples.work(store, run, FakeExecutor(never), replies_of(provider))
    )
    await provider.received(2)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert (2, []) == (len(store.calls(run.id)), store.nodes(run.id))


# Limits.


@pytest.mark.parametrize("parallel", [1, 8])
async def test_a_dollar_limit_is_exceeded_by_one_call_at_most(store: Store, parallel: int) -> None:
    """Replies differ in length, and none is longer than the model's output limit."""
    chance = random.Random(parallel)

    def answer(messages: tuple[Message, ...]) -> str:
        return team_reply(messages) + "\n" + "# \n" * chance.randrange(2_000)

    budget = Budget(attempts=500, dollars=0.5)
    run = samples.run("sampling", parallel=parallel, budget=budget)
    provider = Provider(
        answer, dollars=None, price=samples.PRICE, max_output_tokens=2_000, delay_s=0.001
    )

    worked = await samples.work(store, run, replies=replies_of(provider))

    assert "dollars" == worked.ended.kind == store.ended(run.id).kind
    assert 0.5 <= worked.ledger.spent.dollars
    costs = [call.spent.dollars for call in store.calls(run.id)]
    assert worked.ledger.spent.dollars < 0.5 + max(costs)
    assert len(store.unfinished(run.id)) <= parallel
    check_paid_once(store, run, provider)


async def test_an_attempt_that_the_limit_stopped_goes_on_with_a_larger_budget(
    store: Store,
) -> None:
    run = samples.run(attempts=6, parallel=3, budget=Budget(attempts=6, dollars=0.75))
    provider = Provider(price=None, delay_s=0.001)

    worked = await samples.work(store, run, replies=replies_of(provider))

    assert "$0.75 of $0.75 spent" == worked.reason
    assert {1, 2, 3} == set(store.unfinished(run.id)), "planned, not written"
    larger = samples.run(attempts=6, parallel=3)
    store.reconfigure(larger)
    await check_finished(store, larger, provider)


async def test_three_runs_exceed_the_limit_that_they_share_by_one_call_at_most(
    store: Store,
) -> None:
    shared = Ledger(Budget(attempts=500, dollars=1.0))
    runs = [samples.run("sampling", 100, id=f"relu-{n}", parallel=4, seed=n) for n in range(3)]
    provider = Provider(dollars=0.07, price=samples.PRICE, max_output_tokens=4_000, delay_s=0.001)
    all_worked = await asyncio.gather(
        *(samples.work(store, run, replies=replies_of(provider), shared=shared) for run in runs)
    )

    assert 1.0 <= shared.spent.dollars < 1.0 + 0.07
    assert provider.replied == shared.spent.calls == sum(len(store.calls(run.id)) for run in runs)
    for run, worked in zip(runs, all_worked, strict=True):
        assert ("dollars", None) == (worked.ended.kind, store.ended(run.id)), "it can be resumed"
        assert worked.ledger.spent.calls == len(store.calls(run.id)) > 0
    assert {run.id: spent_by_role(store.calls(run.id)) for run in runs} == store.spent()


async def test_a_run_whose_last_attempts_the_shared_limit_stopped_has_not_ended(
    store: Store,
) -> None:
    """Its own budget lets no further attempt begin, and both are planned and not written."""
    run = samples.run(attempts=2, parallel=2)
    shared, provider = Ledger(Budget(dollars=0.5)), Provider(delay_s=0.001)

    worked = await samples.work(store, run, replies=replies_of(provider), shared=shared)

    assert "$0.50 of $0.50 spent" == worked.reason
    assert ({1, 2}, None) == (set(store.unfinished(run.id)), store.ended(run.id))
    await check_finished(store, run, provider)


# What is on disk before what.


class Noting(Store):
    """A store on a slow disk that notes what is written, and when it is on disk."""

    notes: list[str]

    def begin_attempt(self, run_id: str, attempt: int, *args: Any) -> None:
        super().begin_attempt(run_id, attempt, *args)
        self.notes.append("attempt")

    def begin_call(self, *args: Any) -> int:
        self.notes.append("question")
        return super().begin_call(*args)

    def add_call(self, *args: Any) -> None:
        super().add_call(*args)
        self.notes.append("reply")

    def add_node(self, *args: Any) -> None:
        super().add_node(*args)
        self.notes.append("node")

    async def retried(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        before = len(self.notes)
        result = work(*args, **kwargs)
        if self.notes[before:]:
            await asyncio.sleep(0.001)
            self.notes.append(f"{self.notes[-1]} on disk")
        return result


async def test_what_is_used_or_paid_for_is_on_disk_first() -> None:
    notes: list[str] = []

    def judged(candidate: Candidate) -> Evaluation:
        notes.append("judged")
        return correct(0.5)

    async def before(attempt: int, turn: int) -> None:
        notes.append("asked")

    def note_event(event: Event) -> None:
        if not isinstance(event, Started | AttemptBegan | Stepped):
            notes.append(type(event).__name__)

    with Noting.open("sqlite://") as store:
        store.notes = notes
        await samples.work(
            store,
            samples.run(attempts=1),
            FakeExecutor(judged),
            samples.Arranged(before),
            on_event=note_event,
        )

    asking = ["question", "question on disk", "asked", "reply", "reply on disk", "Charged"]
    expected = ["attempt", "attempt on disk", *asking, *asking, "judged"]
    expected += ["node", "node on disk", "AttemptFinished"]
    assert expected == notes[: len(expected)]
