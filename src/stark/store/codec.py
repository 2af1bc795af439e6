"""Core types to the values of their rows and back.

Knows the columns but no connection: large texts come and go as text here, and `artifacts` puts their digests in
their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stark.core.bench import Bench
from stark.core.call import Call
from stark.core.evaluation import Correct, Evaluation, evaluation_adapter
from stark.core.measurement import Speedup
from stark.core.node import Node, Selection
from stark.core.reference import Reference
from stark.core.run import Ended, Run
from stark.core.standing import vs_eager
from stark.core.usage import Budget

Json = dict[str, Any]
"""A JSON object."""


def run_values(run: Run) -> Json:
    """The row of a run, without its source."""
    exclude: Any = {"id": True, "config": {"budget"}, "problem": {"source"}}
    return {
        "id": run.id,
        "budget": run.config.budget.model_dump(mode="json"),
        "body": run.model_dump(mode="json", exclude=exclude),
        "elapsed_s": 0.0,
        "problem": run.problem.name,
        "strategy": run.config.strategy.name,
        "language": run.config.language,
    }


def read_run(run_id: str, body: Json, budget: Json, source: str) -> Run:
    """The run that `run_values` was made from, with its current budget."""
    problem = body["problem"] | {"source": source}
    config = body["config"] | {"budget": budget}
    return Run.model_validate(body | {"id": run_id, "config": config, "problem": problem})


def read_ended(kind: str | None, detail: str | None) -> Ended | None:
    """Why a run ended."""
    return None if kind is None else Ended.model_validate({"kind": kind, "detail": detail})


def bench_values(bench: Bench) -> Json:
    """The row of a bench."""
    return {
        "name": bench.name,
        "budget": bench.budget.model_dump(mode="json"),
        "body": bench.model_dump(mode="json", exclude={"name", "budget"}),
    }


def read_bench(name: str, body: Json, budget: Json) -> Bench:
    """The bench that `bench_values` was made from, with its current budget."""
    return Bench.model_validate(body | {"name": name, "budget": budget})


def read_budget(values: Json) -> Budget:
    """A run's budget."""
    return Budget.model_validate(values)


def read_reference(values: Json) -> Reference:
    """A run's reference."""
    return Reference.model_validate(values)


def read_selection(parent: int, action: str) -> Selection:
    """What was selected for an attempt."""
    return Selection.model_validate({"parent": parent, "action": action})


def call_values(call: Call) -> Json:
    """The row of a call, without its texts."""
    exclude: Any = {"attempt": True, "turn": True, "messages": True, "reply": {"text"}}
    spent = call.spent
    return {
        "attempt": call.attempt,
        "turn": call.turn,
        "body": call.model_dump(mode="json", exclude=exclude),
        "role": call.role,
        "model": call.reply.model,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "estimated": spent.estimated_calls,
        "dollars": spent.dollars,
        "unpriced": spent.unpriced_calls,
        "seconds": spent.seconds,
    }


def read_call(
    attempt: int, turn: int, body: Json, reply: str, messages: Sequence[tuple[str, str]]
) -> Call:
    """The call that `call_values` was made from; a message is its speaker and text."""
    return Call.model_validate(
        body
        | {
            "attempt": attempt,
            "turn": turn,
            "messages": [{"speaker": speaker, "text": text} for speaker, text in messages],
            "reply": body["reply"] | {"text": reply},
        }
    )


def node_values(node: Node) -> Json:
    """The row of a node, without its selection and its candidate's source."""
    exclude: Any = {"id": True, "parent": True, "action": True, "candidate": {"source"}}
    return {
        "attempt": node.id,
        "body": node.model_dump(mode="json", exclude=exclude),
        "role": node.role,
        "duplicate_of": node.duplicate_of,
        **_measured(node.evaluation),
    }


def promotion_values(evaluation: Evaluation) -> Json:
    """The row of a final check."""
    return {"body": evaluation.model_dump(mode="json"), **_measured(evaluation)}


def read_evaluation(body: Json) -> Evaluation:
    """What a final check found."""
    return evaluation_adapter.validate_python(body)


def read_speedup(ratio: float | None, low: float | None, high: float | None) -> Speedup | None:
    """The speedup against eager in a row."""
    if ratio is None or low is None or high is None:
        return None
    return Speedup(reference="eager", ratio=ratio, low=low, high=high)


def read_node(attempt: int, parent: int, action: str, body: Json, source: str | None) -> Node:
    """The node that `node_values` was made from; `source` is None where there is no candidate."""
    candidate = None if source is None else body["candidate"] | {"source": source}
    selection = {"id": attempt, "parent": parent, "action": action}
    return Node.model_validate(body | selection | {"candidate": candidate})


def _measured(evaluation: Evaluation) -> Json:
    speedup = vs_eager(evaluation)
    return {
        "status": evaluation.status,
        "latency_ms": evaluation.latency_ms if isinstance(evaluation, Correct) else None,
        "speedup": speedup and speedup.ratio,
        "speedup_low": speedup and speedup.low,
        "speedup_high": speedup and speedup.high,
    }
