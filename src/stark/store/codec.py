"""Converts core types to columns of the database and back.

A body, the JSON of a core type, leaves out large texts and a node's evaluation. They are stored separately, and reading
adds them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stark.core.call import Call
from stark.core.evaluation import Correct, Evaluation
from stark.core.node import Node
from stark.core.run import Run
from stark.core.standing import vs_eager

Json = dict[str, Any]
"""A JSON object."""


def run_body(run: Run) -> Json:
    """The body of a run, without the source of its problem."""
    return run.model_dump(mode="json", exclude={"problem": {"source"}})


def read_run(body: Json, source: str) -> Run:
    """The run that `run_body` was made from."""
    return Run.model_validate(body | {"problem": body["problem"] | {"source": source}})


def call_values(call: Call) -> Json:
    """The columns of an answered call, without its texts."""
    body = call.model_dump(mode="json", exclude={"messages": True, "reply": {"text"}})
    return {"turn": call.turn, "body": body, "outcome": "answered", **call.spent.model_dump()}


def read_call(body: Json, reply: str, messages: Sequence[Json]) -> Call:
    """The call that `call_values` was made from."""
    return Call.model_validate(
        body | {"messages": messages, "reply": body["reply"] | {"text": reply}}
    )


def node_values(node: Node) -> Json:
    """The columns of a node, without its candidate's source."""
    exclude: Any = {"candidate": {"source"}, "evaluation": True}
    return {
        "attempt": node.id,
        "duplicate_of": node.duplicate_of,
        "body": node.model_dump(mode="json", exclude=exclude),
        **evaluation_values(node.evaluation),
    }


def read_node(body: Json, evaluation: Json, source: str | None) -> Node:
    """The node that `node_values` was made from; `source` is None where there is no candidate."""
    candidate = None if source is None else body["candidate"] | {"source": source}
    return Node.model_validate(body | {"evaluation": evaluation, "candidate": candidate})


def evaluation_values(evaluation: Evaluation) -> Json:
    """The columns of an evaluation: the whole evaluation as JSON, and the values that queries need."""
    speedup = vs_eager(evaluation)
    return {
        "evaluation": evaluation.model_dump(mode="json"),
        "status": evaluation.status,
        "latency_ms": evaluation.latency_ms if isinstance(evaluation, Correct) else None,
        "speedup": speedup and speedup.model_dump(),
    }
