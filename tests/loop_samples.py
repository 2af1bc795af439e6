"""What the tests of the loop share: a run, scripted replies, and a way to work on a run that notes its events."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from stark import strategies
from stark.core.call import Message, Reply
from stark.core.problem import Problem
from stark.core.run import Ended, RoleModel, Run
from stark.core.usage import Budget, Price
from stark.correspondence import LiveReplies, ModelPool, Replies
from stark.evaluator.executors import Executor
from stark.events import Event, OnEvent, Started, ignore
from stark.ledger import Ledger
from stark.loop import work_on
from stark.models import Model
from stark.search.policies.base import Policy
from stark.search.tree import Tree
from stark.store import Store
from support.executor import FakeExecutor
from support.model import ScriptedModel
from support.replies import role_of, team_reply

TEMPERATURES = {"plan": 0.8, "code": 0.1, "debug": 0.1, "solo": 0.8}
NO_PLAN = "I would rather talk about something else."
PRICE = Price(input_per_million=3.0, output_per_million=15.0)


def run(strategy: str = "stark", attempts: int = 12, **changes: Any) -> Run:
    values = {
        "id": "relu-1a2b",
        "created": datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
        "problem": Problem(name="relu", source="class Model: ...\n"),
        "version": "0.1.0",
    }
    config = {
        "language": "triton",
        "strategy": strategies.strategy(strategy),
        "models": models_named("exec:scripted"),
        "executor": "local",
        "budget": Budget(attempts=attempts),
        "seed": 7,
    }
    of_run = {name: value for name, value in changes.items() if name in Run.model_fields}
    of_config = {name: value for name, value in changes.items() if name not in of_run}
    return Run.model_validate(values | of_run | {"config": config | of_config})


def models_named(name: str) -> dict[str, RoleModel]:
    """Every role with a model of this name, at the temperature of the role."""
    return {
        role: RoleModel(model=name, temperature=temperature)
        for role, temperature in TEMPERATURES.items()
    }


def never_a_plan(messages: tuple[Message, ...]) -> str:
    """A plan agent that keeps no rules, beside colleagues who do."""
    return NO_PLAN if role_of(messages) == "plan" else team_reply(messages)


def distinct() -> Callable[[tuple[Message, ...]], str]:
    """A team that answers the same prompt with another source each time."""
    count = itertools.count(1)

    def answer(messages: tuple[Message, ...]) -> str:
        reply = team_reply(messages)
        if role_of(messages) == "plan":  # it quotes the source
            return reply
        return reply.replace("return x", f"return x * {next(count)}")

    return answer


def scripted(
    answer: Callable[[tuple[Message, ...]], str] = team_reply,
    dollars: float | None = 0.25,
    **options: Any,
) -> tuple[LiveReplies, ScriptedModel]:
    """Replies of every role from one scripted model, and that model."""
    model = ScriptedModel(answer, dollars=dollars, **options)
    return replies_of(dict.fromkeys(TEMPERATURES, model)), model


def replies_of(models: Mapping[str, Model], slots: int | None = None) -> LiveReplies:
    """Replies of each role from its own model."""
    pool = ModelPool(slots, lambda role, price: models[role])
    entries = {role: RoleModel(model=role, temperature=TEMPERATURES[role]) for role in models}
    return LiveReplies(entries, pool)


class Arranged:
    """Scripted replies, each after what `before` does, given the attempt and the turn: it may wait, note or raise."""

    def __init__(
        self,
        before: Callable[[int, int], Awaitable[object]],
        answer: Callable[[tuple[Message, ...]], str] = team_reply,
        **options: Any,
    ) -> None:
        self._before = before
        self._replies, self.scripted = scripted(answer, **options)
        self.turn, self.model, self.at_most = (
            self._replies.turn,
            self._replies.model,
            self._replies.at_most,
        )

    async def reply(
        self, attempt: int, turn: int, role: str, messages: tuple[Message, ...], more_output: bool
    ) -> Reply:
        await self._before(attempt, turn)
        return await self._replies.reply(attempt, turn, role, messages, more_output)


def half_priced() -> LiveReplies:
    """Replies of a planner that costs 0.25 dollars a reply, and of other roles without a price."""
    unpriced, priced = (
        ScriptedModel(team_reply, dollars=None),
        ScriptedModel(team_reply, dollars=0.25),
    )
    return replies_of(dict.fromkeys(TEMPERATURES, unpriced) | {"plan": priced})


class Worked(NamedTuple):
    """What came of working on a run."""

    ended: Ended
    tree: Tree
    ledger: Ledger
    events: list[Event]

    @property
    def reason(self) -> str:
        return self.ended.detail

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


async def work(
    store: Store,
    run: Run,
    executor: Executor | None = None,
    replies: Replies | None = None,
    *,
    shared: Ledger | None = None,
    policy: Policy | None = None,
    on_event: OnEvent = ignore,
) -> Worked:
    """Work on a run, new or stored."""
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        on_event(event)

    ended = await work_on(
        run,
        store,
        executor or FakeExecutor(),
        replies or scripted()[0],
        emit,
        shared,
        policy,
    )
    (started,) = (event for event in events if isinstance(event, Started))
    return Worked(ended, started.tree, started.ledger, events)
