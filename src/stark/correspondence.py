"""Asks the models, and stores and charges each call, so that no reply is paid for twice.

Before a question is sent, the call and its reserved cost are stored; before a reply is used, it is stored and charged.
A run that stops waits up to DRAIN_S for its calls in flight, since providers charge for them in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Literal

from stark.core.call import Call, Fit, Lost, Message, Reply
from stark.core.errors import ModelRefused, PromptRefused, StarkError, StoreError
from stark.core.run import RoleModel
from stark.core.usage import Cost, Price, Spent, Usage, estimated_tokens, spent_on, utf8_bytes
from stark.events import Charged, Draining, OnEvent, Stepped
from stark.ledger import Ledger, Reservation
from stark.models import Model, open_model
from stark.recorded import RecordedReplies
from stark.store import Store

DRAIN_S = 300.0
"""How long a stopping run waits for calls in flight. The longest reply observed took this long."""

MOST_REFUSED = 3
"""If a model refuses this many prompts before the run's first reply, the fault is taken to be the model's."""

MORE_OUTPUT = 2
"""The factor by which the output limit is raised when a question is repeated because its reply was truncated."""


class ModelPool:
    """Opens each model once and bounds the number of concurrent questions. The runs of a bench share one pool."""

    def __init__(
        self,
        slots: int | None = None,
        open_one: Callable[[str, Price | None], Model] = open_model,
    ) -> None:
        """`slots` is the maximum number of concurrent questions; None means no limit."""
        self.turn: AbstractAsyncContextManager[object] = (
            nullcontext() if slots is None else asyncio.Semaphore(slots)
        )
        self._open_one = open_one
        self._opened: dict[tuple[str, Price | None], Model] = {}

    def get(self, entry: RoleModel) -> Model:
        """The model of a role. Raises the errors of opening a model, such as ModelRefused for a missing key."""
        key = (entry.model, entry.price)
        if key not in self._opened:
            self._opened[key] = self._open_one(*key)
        return self._opened[key]


class LiveReplies:
    """Asks each role's model at the role's temperature."""

    def __init__(self, models: Mapping[str, RoleModel], pool: ModelPool | None = None) -> None:
        """Opens every model, so that a missing key is reported before any work."""
        pool = pool or ModelPool()
        self.turn = pool.turn
        """A context in which each question is asked; it bounds the number of concurrent questions."""

        self._models = {role: (pool.get(entry), entry) for role, entry in models.items()}

    def model(self, role: str) -> str:
        """The name of the role's model."""
        return self._models[role][0].name

    def at_most(self, role: str, messages: tuple[Message, ...], more_output: bool) -> Cost:
        """An upper estimate of a call's cost, from its prompt, output limit and price; $0 if the price is unknown."""
        model, _ = self._models[role]
        given = estimated_tokens(sum(utf8_bytes(message.text) for message in messages))
        answered = model.max_output_tokens * (MORE_OUTPUT if more_output else 1)
        price = model.price
        return Cost(
            tokens=given + answered, dollars=price.dollars(given, answered) if price else 0.0
        )

    async def reply(
        self, attempt: int, turn: int, role: str, messages: tuple[Message, ...], more_output: bool
    ) -> Reply:
        """The reply to question number `turn` of an attempt. Raises ModelError."""
        model, entry = self._models[role]
        limit = model.max_output_tokens * MORE_OUTPUT if more_output else None
        reply = await model.ask(messages, entry.temperature, max_output_tokens=limit)
        usage = _priced(reply, messages, model.price)
        return reply.model_copy(update={"text": plain(reply.text), "usage": usage})

    def price(self, role: str) -> Price | None:
        """The price of the role's model; None if it is unknown."""
        return self._models[role][0].price


Replies = LiveReplies | RecordedReplies
"""The source of a run's replies: live models or a recording."""


class Desk:
    """What a run's attempts need to ask their questions: the run's store, ledger, replies and event handler."""

    def __init__(
        self, run_id: str, store: Store, ledger: Ledger, replies: Replies, emit: OnEvent
    ) -> None:
        self.run_id, self.store, self.ledger = run_id, store, ledger
        self.replies, self.emit = replies, emit
        self._refused = 0

    def count_refused(self, refusal: PromptRefused) -> None:
        """Count a refused prompt. Raises ModelRefused if there are MOST_REFUSED and no model has replied yet."""
        self._refused += 1
        if self._refused >= MOST_REFUSED and not self.ledger.was_answered:
            raise ModelRefused(str(refusal)) from refusal


class Correspondence:
    """Asks the questions of one attempt in order. A question that already has a stored reply is not asked again."""

    def __init__(self, desk: Desk, attempt: int, stored: Iterable[Call] = ()) -> None:
        """`stored` are the attempt's calls that were answered in earlier sessions."""
        self._desk, self._attempt = desk, attempt
        self._stored = {call.turn: call for call in stored}
        self._turn = 0

    @property
    def sent_back(self) -> bool | None:
        """Whether the latest reply was sent back; None if that is still to be decided.

        It was if an earlier session stored the next question, and never is in a replay, whose replies are final.
        """
        if self._turn in self._stored:
            return True
        return False if isinstance(self._desk.replies, RecordedReplies) else None

    async def ask(
        self, role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool = False
    ) -> Reply:
        """The reply to the attempt's next question; `more_output` raises the output limit.

        Raises ModelError, and LimitReached if the budget admits no further call.
        """
        desk, turn = self._desk, self._turn
        self._turn += 1
        desk.emit(Stepped(self._attempt, role))
        if turn in self._stored:
            return self._replayed(turn, role)
        async with desk.replies.turn:
            at_most = desk.replies.at_most(role, messages, more_output)
            reservation = await desk.ledger.admit(role, at_most)
            # The call is paid for, so it is not cancelled when the run stops.
            calling = self._call(turn, messages, fit, more_output, reservation)
            return await self._drained(asyncio.create_task(calling))

    async def _drained(self, calling: asyncio.Task[Reply]) -> Reply:
        """The call's reply. If this task is cancelled, the reply is awaited and stored first, for up to DRAIN_S."""
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            if not calling.done():
                self._desk.emit(Draining())
                await asyncio.wait({calling}, timeout=DRAIN_S)
            raise
        finally:
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)

    def _replayed(self, turn: int, role: str) -> Reply:
        stored = self._stored[turn]
        if stored.role != role:
            raise StoreError(
                f"attempt {self._attempt} of run {self._desk.run_id} was begun by another version of STARK: the "
                f"attempt's reply {turn + 1} belongs to role {stored.role}, but role {role} is asking; start a new run"
            )
        return stored.reply

    async def _call(
        self,
        turn: int,
        messages: tuple[Message, ...],
        fit: Fit,
        more_output: bool,
        reservation: Reservation,
    ) -> Reply:
        """Store the call, ask the question, store the reply, and charge the cost."""
        desk, store, role = self._desk, self._desk.store, reservation.role
        model, spent = desk.replies.model(role), Spent()
        asked: int | None = None
        try:
            asked = await store.retried(
                store.begin_call, desk.run_id, self._attempt, role, model, reservation.cost
            )
            reply = await desk.replies.reply(self._attempt, turn, role, messages, more_output)
            call = Call(
                attempt=self._attempt, turn=turn, role=role, messages=messages, reply=reply, fit=fit
            )
            spent = call.spent
            await store.retried(store.add_call, desk.run_id, call, asked, desk.ledger.elapsed_s)
        except BaseException as failure:
            if asked is not None and not spent.calls:
                refused = isinstance(failure, StarkError)
                if not refused:  # cancelled or a bug: unknown whether the call is billed
                    spent = Lost(role=role, model=model, reserved=reservation.cost).spent
                outcome: Literal["refused", "lost"] = "refused" if refused else "lost"
                await store.retried(store.settle_call, desk.run_id, asked, outcome)
            if isinstance(failure, PromptRefused):
                desk.count_refused(failure)
            raise
        finally:
            desk.ledger.charge(reservation, spent)
        desk.emit(Charged())
        return reply


def _priced(reply: Reply, messages: tuple[Message, ...], price: Price | None) -> Usage:
    """A reply's usage. Dollars that it does not report are computed from its token counts, reported or estimated."""
    usage = reply.usage
    if usage.dollars is not None or price is None:
        return usage
    asked = sum(utf8_bytes(message.text) for message in messages)
    spent = spent_on(usage, asked, utf8_bytes(reply.text))
    dollars = price.dollars(spent.input_tokens, spent.output_tokens)
    return usage.model_copy(update={"dollars": dollars})


def plain(text: str) -> str:
    """The text of a reply with newlines as its only line ends and with `?` in place of lone surrogates.

    Python would treat a carriage return as a line end too, and a lone surrogate cannot be encoded in UTF-8.
    """
    unbroken = text.replace("\r\n", "\n").replace("\r", "\n")
    return unbroken.encode("utf-8", "replace").decode("utf-8")
