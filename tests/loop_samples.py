"""What the tests of the loop share: a run, a team's replies that follow from its prompts, and a watch.

Each scripted reply depends on every word of its prompt. So two runs that write the same sources
were also shown the same things on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from stark.core.base import digest
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
from stark.strategies import strategy
from stark.testing.executor import FakeExecutor
from stark.testing.model import ScriptedModel

TEMPERATURES = {"plan": 0.8, "code": 0.1, "debug": 0.1, "solo": 0.8}
NO_PLAN = "I would rather talk about something else."


def run(strategy: str = "stark", attempts: int = 12, **changes: Any) -> Run:
    values = {
        "id": "relu-1a2b",
        "created": datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
        "problem": Problem(name="relu", source="class Model: ...\n"),
        "language": "triton",
        "strategy": strategy,
        "models": {
            role: RoleModel(model="exec:scripted", temperature=temperature)
            for role, temperature in TEMPERATURES.items()
        },
        "executor": "local",
        "budget": Budget(attempts=attempts),
        "seed": 7,
        "version": "0.1.0",
    }
    return Run.model_validate(values | changes)


def role_of(messages: tuple[Message, ...]) -> str:
    """The role that a prompt addresses."""
    found = re.match(r"# Your role: (\w+)", messages[1].text)
    assert found is not None
    return found[1]


def team_reply(messages: tuple[Message, ...]) -> str:
    """A reply that the role accepts."""
    prompt = messages[1].text
    mark = digest(*(message.text for message in messages))
    line = f"        return x  # {mark}"
    if role_of(messages) == "plan":
        numbered = re.findall(r"^ *(\d+) \| ( +return .*)$", prompt, re.MULTILINE)
        if not numbered:
            return _rewrite(mark)
        number, text = numbered[0]
        return _edit(number, text, mark)
    if "ANCHOR: name" in prompt:
        return f"ANCHOR: spot\n```python\n{line}\n```"
    return (
        "Here it is.\n```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, x):\n{line}\n```"
    )


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
        strategy(run.strategy),
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


def _rewrite(mark: str) -> str:
    return f"ACTION: rewrite\nSTRATEGY:\nOne fused kernel, {mark}.\n"


def _edit(number: str, text: str, mark: str) -> str:
    return (
        f"ACTION: edit\nSTRATEGY:\nA faster return, {mark}.\nANCHOR: spot\nLINES: {number}\n"
        f"BEGINS: {text.strip()}\nENDS: {text.strip()}\nINSTRUCTION:\nReturn sooner, {mark}.\n"
    )
