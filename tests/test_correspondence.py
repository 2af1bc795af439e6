"""Questions and replies: what is asked, stored and charged, in which order, whatever happens meanwhile."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

import loop_samples as samples
from stark import correspondence
from stark.core.call import Call, Fit, Message, Reply
from stark.core.errors import (
    ModelError,
    ModelRefused,
    ModelUnreachable,
    PromptRefused,
    StoreError,
    UsageError,
)
from stark.core.node import Selection
from stark.core.run import RoleModel
from stark.core.usage import Budget, Cost, Spent, Usage
from stark.correspondence import Correspondence, Desk, LiveReplies, ModelPool, plain
from stark.events import Charged, Draining, Event, Stepped
from stark.ledger import Ledger, LimitReached
from stark.store import Store
from support.model import Asked, ScriptedModel

QUESTION = (Message(speaker="user", text="Write a kernel."),)
FIT = Fit(limit_tokens=32_000, tokens=6)
RUN = samples.run()


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        store.create_run(RUN)
        for attempt in range(1, 9):
            store.begin_attempt(RUN.id, attempt, Selection(parent=0, action="improve"))
        yield store


class Office:
    """A desk with what it works with."""

    def __init__(
        self,
        store: Store,
        script: Any = lambda _: "a reply",
        ledger: Ledger | None = None,
        slots: int | None = None,
        **model: Any,
    ) -> None:
        self.store, self.ledger = store, ledger or Ledger(Budget())
        self.model = ScriptedModel(script, **({"dollars": 0.25} | model))
        self.events: list[Event] = []
        replies = samples.replies_of(dict.fromkeys(samples.TEMPERATURES, self.model), slots)
        self.desk = Desk(RUN.id, store, self.ledger, replies, self.events.append)

    async def ask(self, attempt: int = 1, role: str = "code") -> Reply:
        stored = self.desk.store.calls(RUN.id, attempt)
        return await Correspondence(self.desk, attempt, stored).ask(role, QUESTION, FIT)

    @property
    def stored(self) -> list[int]:
        """The attempts of stored replies."""
        return [call.attempt for call in self.store.calls(RUN.id)]

    @property
    def lost(self) -> int:
        return len(self.store.lost_calls(RUN.id))


# Models of the roles.


async def test_each_role_asks_its_own_model_at_its_own_temperature() -> None:
    models = {role: ScriptedModel([f"I am {role}"], name=role) for role in samples.TEMPERATURES}
    replies = samples.replies_of(models)

    for role, temperature in samples.TEMPERATURES.items():
        assert f"I am {role}" == (await replies.reply(1, 0, role, QUESTION, False)).text
        assert role == replies.model(role)
        assert [Asked(QUESTION, temperature)] == models[role].asked


async def test_a_pool_opens_each_model_once_for_each_price() -> None:
    opened: list[tuple[str, Any]] = []

    def open_one(name: str, price: Any) -> ScriptedModel:
        opened.append((name, price))
        return ScriptedModel([], name=name, price=price)

    pool = ModelPool(open_one=open_one)
    entry = RoleModel(model="vllm:one")
    priced = entry.model_copy(update={"price": samples.PRICE})
    replies = LiveReplies(
        {"plan": entry, "code": entry.model_copy(update={"temperature": 1})}, pool
    )
    LiveReplies({"plan": entry, "code": priced}, pool)

    assert [("vllm:one", None), ("vllm:one", samples.PRICE)] == opened
    assert (None, None) == (replies.price("plan"), replies.price("code"))


async def test_models_are_opened_by_their_names() -> None:
    spec = RoleModel(model="exec:cat", temperature=None)
    replies = LiveReplies({"plan": spec, "code": spec})

    assert "Write a kernel." in (await replies.reply(1, 0, "code", QUESTION, False)).text


def test_a_model_that_cannot_be_opened_is_reported_before_any_work() -> None:
    with pytest.raises(UsageError, match="unknown model 'nobody:x'"):
        LiveReplies({"plan": RoleModel(model="exec:cat"), "code": RoleModel(model="nobody:x")})


async def test_a_truncated_reply_is_asked_for_with_twice_the_room_and_that_is_reserved() -> None:
    replies, model = samples.scripted(
        lambda _: "x" * 1_000, None, max_output_tokens=100, price=samples.PRICE
    )

    cut = await replies.reply(1, 0, "code", QUESTION, False)
    roomy = await replies.reply(1, 1, "code", QUESTION, True)

    assert (400, True, 800, True) == (
        len(cut.text),
        cut.truncated,
        len(roomy.text),
        roomy.truncated,
    )
    assert [None, 200] == model.limits
    for more_output, answered in ((False, 100), (True, 200)):
        dollars = (5 * 3 + answered * 15) / 1e6
        assert Cost(tokens=5 + answered, dollars=dollars) == replies.at_most(
            "code", QUESTION, more_output
        )


def test_without_a_price_only_tokens_are_reserved() -> None:
    replies, _ = samples.scripted(max_output_tokens=100)

    assert Cost(tokens=105, dollars=0.0) == replies.at_most("code", QUESTION, False)


async def test_a_price_holds_for_a_model_that_reports_no_tokens() -> None:
    class Silent(ScriptedModel):
        async def ask(self, *args: Any, **options: Any) -> Reply:
            return Reply(text="x" * 300, model=self.name)

    replies = samples.replies_of({"code": Silent([], price=samples.PRICE)})

    usage = (await replies.reply(1, 0, "code", QUESTION, False)).usage

    assert Usage(dollars=(5 * 3 + 100 * 15) / 1e6) == usage


async def test_whatever_a_model_leaves_in_a_reply_it_can_be_parsed_sent_on_and_written() -> None:
    replies, _ = samples.scripted(lambda _: "one\r\ntwo\rthree = '\ud83d'\nfour \U0001f600")

    text = (await replies.reply(1, 0, "plan", QUESTION, False)).text

    assert "one\ntwo\nthree = '?'\nfour \U0001f600" == text
    assert text == json.loads(json.dumps(text, ensure_ascii=False).encode())
    assert ast.parse(text.partition("four")[0])


def test_honest_text_is_left_as_it_is() -> None:
    text = "\tµs \u2013 'é'\n\n\f\u2028x\n"

    assert text == plain(text)


# One question.


async def test_a_reply_is_stored_charged_and_reported(store: Store) -> None:
    office = Office(store)

    reply = await office.ask(role="plan")

    (call,) = store.calls(RUN.id)
    assert Call(attempt=1, turn=0, role="plan", messages=QUESTION, reply=reply, fit=FIT) == call
    assert {"plan": call.spent} == office.ledger.spent_by_role == store.spent(RUN.id)[RUN.id]
    assert [Stepped(1, "plan"), Charged()] == office.events


async def test_a_stored_reply_is_not_asked_for_or_charged_again(store: Store) -> None:
    first = await Office(store).ask()
    later = Office(store, [])

    assert first == await later.ask()
    assert (Spent(), [], 1) == (later.ledger.spent, later.model.asked, len(store.calls(RUN.id)))


async def test_a_stored_reply_of_another_role_is_refused(store: Store) -> None:
    await Office(store).ask(role="plan")

    with pytest.raises(StoreError, match="reply 1 belongs to role plan, but role code is asking"):
        await Office(store).ask(role="code")


@pytest.mark.parametrize("error", [PromptRefused("no"), ModelUnreachable("?"), ModelRefused("key")])
async def test_a_question_without_a_reply_costs_nothing_and_may_be_asked_again(
    store: Store, error: ModelError
) -> None:
    failing = Office(store, error=error)
    with pytest.raises(type(error)):
        await failing.ask()
    store.reopen_run(RUN.id)
    assert (Spent(), {}, 0) == (failing.ledger.spent, store.spent(RUN.id), failing.lost)

    assert "a reply" == (await Office(store).ask()).text


async def test_a_fault_of_ours_leaves_no_reservation_behind(store: Store) -> None:
    def faulty(_: object) -> str:
        raise ZeroDivisionError

    office = Office(store, faulty, Ledger(Budget(tokens=50_000)))
    with pytest.raises(ZeroDivisionError):
        await office.ask()

    fits_only_alone = asyncio.wait_for(office.ledger.admit("code", Cost(tokens=10**9)), 0.1)
    assert 10**9 == (await fits_only_alone).cost.tokens
    assert 1 == office.lost, "nobody knows whether it was paid"
    assert 1 == office.ledger.spent.lost_calls


async def test_a_reply_that_cannot_be_stored_is_charged_all_the_same(store: Store) -> None:
    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    office = Office(store)
    store.add_call = full  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        await office.ask()

    assert 0.25 == office.ledger.spent.dollars
    store.reopen_run(RUN.id)
    assert (0, 1) == (len(store.calls(RUN.id)), office.lost)


async def test_three_refusals_before_any_reply_are_about_the_model(store: Store) -> None:
    office = Office(store, error=PromptRefused("not so"))
    for attempt in (1, 2):
        with pytest.raises(PromptRefused):
            await office.ask(attempt)

    with pytest.raises(ModelRefused, match="not so"):
        await office.ask(3)


async def test_lost_calls_are_no_replies(store: Store) -> None:
    ledger = Ledger(Budget(), spent={"code": Spent(calls=2, lost_calls=2)})
    office = Office(store, ledger=ledger, error=PromptRefused("not so"))
    for attempt in (1, 2):
        with pytest.raises(PromptRefused):
            await office.ask(attempt)

    with pytest.raises(ModelRefused):
        await office.ask(3)


async def test_refusals_after_a_reply_are_about_their_prompts(store: Store) -> None:
    await (office := Office(store)).ask(8)
    office.model._error = PromptRefused("not so")

    for attempt in range(1, 8):
        with pytest.raises(PromptRefused):
            await office.ask(attempt)


# Several questions.


async def test_slots_bound_how_many_questions_are_asked_at_once(store: Store) -> None:
    asking, most = 0, 0

    class Counting(ScriptedModel):
        async def ask(self, *args: Any, **options: Any) -> Reply:
            nonlocal asking, most
            asking += 1
            most = max(most, asking)
            reply = await super().ask(*args, **options)
            asking -= 1
            return reply

    office = Office(store)
    model = Counting(lambda _: "a reply", delay_s=0.001)
    office.desk.replies = samples.replies_of({"code": model}, slots=3)
    await asyncio.gather(*(office.ask(attempt) for attempt in range(1, 9)))

    assert 3 == most
    assert list(range(1, 9)) == office.stored


async def test_at_the_limit_the_questions_that_wait_are_not_sent(store: Store) -> None:
    ledger = Ledger(Budget(dollars=1.0))
    ledger.learn("code", Cost(tokens=100, dollars=0.3))
    office = Office(store, ledger=ledger, delay_s=0.001)

    replies = await asyncio.gather(
        *(office.ask(attempt) for attempt in range(1, 9)), return_exceptions=True
    )

    assert [Reply] * 4 + [LimitReached] * 4 == list(map(type, replies))
    assert [1, 2, 3, 4] == office.stored
    assert 1.0 == ledger.spent.dollars


# When the run stops.


async def sent() -> None:
    """Let the questions that are being asked be sent."""
    for _ in range(9):
        await asyncio.sleep(0)


async def stopped(
    office: Office, attempts: int, times: int = 1, pause_s: float = 0.0
) -> list[BaseException | Reply]:
    """What became of questions that were cancelled, perhaps repeatedly, after they were sent."""
    asking = [asyncio.create_task(office.ask(attempt)) for attempt in range(1, attempts + 1)]
    await sent()
    assert attempts == len(office.model.asked)
    for _ in range(times):
        for task in asking:
            task.cancel()
        await asyncio.sleep(pause_s)
    return await asyncio.gather(*asking, return_exceptions=True)


async def test_questions_in_flight_are_awaited_stored_and_charged(store: Store) -> None:
    office = Office(store, delay_s=0.1)

    replies = await stopped(office, 8)

    assert {asyncio.CancelledError} == set(map(type, replies))
    assert (list(range(1, 9)), 0) == (office.stored, office.lost)
    assert (8, 2.0) == (office.ledger.spent.calls, office.ledger.spent.dollars)
    assert 8 == office.events.count(Draining()) == office.events.count(Charged())


@pytest.mark.parametrize("how", ["stopped twice", "too slow"])
async def test_a_reply_that_is_not_awaited_is_charged_as_reserved(
    store: Store, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(store, dollars=None, price=samples.PRICE, delay_s=60, max_output_tokens=1_000)
    if how == "too slow":
        monkeypatch.setattr(correspondence, "DRAIN_S", 0.01)

    await stopped(office, 2, times=2 if how == "stopped twice" else 1)

    reserved = Cost(tokens=1_005, dollars=(5 * 3 + 1_000 * 15) / 1e6)
    assert ([], [reserved] * 2) == (
        office.stored,
        [one.reserved for one in store.lost_calls(RUN.id)],
    )
    spent = office.ledger.spent
    assert store.spent(RUN.id)[RUN.id] == office.ledger.spent_by_role
    assert (2, 2, 2 * reserved.tokens) == (spent.calls, spent.lost_calls, spent.tokens)


async def test_a_reply_that_was_stored_is_not_lost_too(store: Store) -> None:
    """It is stored, and the run is stopped for good while the disk is still busy with it."""
    disk = asyncio.Event()
    stored_once = asyncio.Event()
    settled = store._database.settled

    async def slow() -> None:
        if store.calls(RUN.id):
            stored_once.set()
            await disk.wait()
        await settled()

    store._database.settled = slow  # type: ignore[method-assign]
    office = Office(store)
    asking = asyncio.create_task(office.ask())
    await stored_once.wait()
    for _ in range(2):
        asking.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert ([1], 0) == (office.stored, office.lost)
    assert (1, 0) == (office.ledger.spent.calls, office.ledger.spent.lost_calls)


async def test_a_question_that_waits_for_its_turn_is_neither_sent_nor_stored(store: Store) -> None:
    office = Office(store, slots=1, delay_s=0.1)
    asking = [asyncio.create_task(office.ask(attempt)) for attempt in (1, 2)]
    await sent()
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)

    assert ([1], 1) == (office.stored, len(office.model.asked))
