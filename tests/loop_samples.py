"""What the tests of the loop share: a run, scripted replies, and a watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from stark import strategies
from stark.core.call import Message
from stark.core.evaluation import Evaluation
from stark.core.node import Node, Selection
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import RoleModel, Run
from stark.core.usage import Budget, Usage
from stark.optimize import optimize
from stark.replies import LiveReplies, Replies
from stark.search.tree import Tree
from stark.store import Store
from stark.testing.executor import FakeExecutor
from stark.testing.model import ScriptedModel
from stark.testing.replies import role_of, team_reply

TEMPERATURES = {"plan": 0.8, "code": 0.1, "debug": 0.1, "solo": 0.8}
NO_PLAN = "I would rather talk about something else."


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
        "models": {
            role: RoleModel(model="exec:scripted", temperature=temperature)
            for role, temperature in TEMPERATURES.items()
        },
        "executor": "local",
        "budget": Budget(attempts=attempts),
        "seed": 7,
    }
    of_run = {name: value for name, value in changes.items() if name in Run.model_fields}
    of_config = {name: value for name, value in changes.items() if name not in of_run}
    return Run.model_validate(values | of_run | {"config": config | of_config})


def never_a_plan(messages: tuple[Message, ...]) -> str:
    """A plan agent that keeps no rules, beside colleagues who do."""
    return NO_PLAN if role_of(messages) == "plan" else team_reply(messages)


def scripted(
    answer: Callable[[tuple[Message, ...]], str] = team_reply, dollars: float | None = 0.25
) -> tuple[LiveReplies, ScriptedModel]:
    """Replies of every role from one model without a model, and that model."""
    model = ScriptedModel(answer, dollars=dollars)
    return replies_of(dict.fromkeys(TEMPERATURES, model)), model


def replies_of(models: Mapping[str, Any]) -> LiveReplies:
    """Replies of each role from its own model."""
    return LiveReplies({role: (model, TEMPERATURES[role]) for role, model in models.items()})


def half_priced() -> LiveReplies:
    """Replies of a planner that costs 0.25 dollars a reply, and of colleagues who tell no price."""
    silent, paid = ScriptedModel(team_reply, dollars=None), ScriptedModel(team_reply, dollars=0.25)
    return replies_of(dict.fromkeys(TEMPERATURES, silent) | {"plan": paid})


async def work(
    store: Store,
    run: Run,
    executor: FakeExecutor | None = None,
    replies: Replies | None = None,
    watch: Notes | None = None,
) -> tuple[Tree, str]:
    """Work on a run that may be new or stored already."""
    if run.id not in {summary.id for summary in store.summaries()}:
        store.create_run(run)
    return await optimize(
        run,
        store,
        executor or FakeExecutor(),
        replies or scripted()[0],
        watch or Notes(),
    )


class Notes:
    """A watch that writes down what it sees."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.usage = Usage()

    def started(self, run: Run, reference: Reference, tree: Tree, usage: Usage) -> None:
        self.events.append(f"started with {len(tree.nodes)} nodes")
        self.usage = usage

    def began(self, attempt: int, selection: Selection) -> None:
        self.events.append(f"began {attempt}: {selection.action} {selection.parent}")

    def stepped(self, attempt: int, step: str) -> None:
        self.events.append(f"{attempt} {step}")

    def paid(self, usage: Usage) -> None:
        self.usage = usage

    def finished(self, node: Node) -> None:
        self.events.append(f"finished {node.id}: {node.evaluation.status}")

    def promoting(self, node: Node) -> None:
        self.events.append(f"final check of {node.id}")

    def promoted(self, node: Node, evaluation: Evaluation) -> None:
        self.events.append(f"final check of {node.id}: {evaluation.status}")
