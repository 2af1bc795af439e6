"""Core types to the values of their rows and back.

Knows the columns but no connection: large texts come and go as text here, and `artifacts` puts
their digests in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stark.core.bench import Bench
from stark.core.call import Call
from stark.core.evaluation import Correct, Evaluation, evaluation_adapter
from stark.core.node import Node, Selection
from stark.core.reference import Reference
from stark.core.run import Run
from stark.core.usage import Budget

Json = dict[str, Any]
"""A JSON object."""


def run_values(run: Run) -> Json:
    """The row of a run, without its source."""
    return {
        "id": run.id,
        "budget": run.config.budget.model_dump(mode="json"),
        "body": run.model_dump(
            mode="json", exclude={"id": True, "config": {"budget"}, "problem": {"source"}}
        ),
        "problem": run.problem.name,
        "strategy": run.config.strategy.name,
        "language": run.config.language,
    }


def read_run(run_id: str, body: Json, budget: Json, source: str) -> Run:
    """The run that `run_values` was made from, with the budget it has now."""
    problem = body["problem"] | {"source": source}
    config = body["config"] | {"budget": budget}
    return Run.model_validate(body | {"id": run_id, "config": config, "problem": problem})


REFUSED = "the problem cannot be used: "
"""How the reason begins with which a run ended whose problem was refused.

It is kept there, since nothing else tells: the reference need not be missing (a judge that is started anew may refuse what
an earlier one measured), nor an attempt be unfinished (so may the final check). Only this file writes and reads it.
"""


def refusal(why: str) -> str:
    """The reason with which a run ends whose problem was refused."""
    return REFUSED + why


def is_refusal(reason: str | None) -> bool:
    """Whether a run ended because its problem was refused."""
    return reason is not None and reason.startswith(REFUSED)


def bench_values(bench: Bench) -> Json:
    """The row of a bench."""
    return {
        "name": bench.name,
        "budget": bench.budget.model_dump(mode="json"),
        "body": bench.model_dump(mode="json", exclude={"name", "budget"}),
    }


def read_bench(name: str, body: Json, budget: Json) -> Bench:
    """The bench that `bench_values` was made from, with the budget it has now."""
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
    return {
        "attempt": call.attempt,
        "turn": call.turn,
        "body": call.model_dump(
            mode="json",
            exclude={"attempt": True, "turn": True, "messages": True, "reply": {"text"}},
        ),
        "role": call.role,
        "model": call.reply.model,
        "input_tokens": call.reply.usage.input_tokens,
        "output_tokens": call.reply.usage.output_tokens,
        "dollars": call.reply.usage.dollars,
        "seconds": call.reply.usage.seconds,
        "asked_bytes": call.asked_bytes,
        "answered_bytes": call.answered_bytes,
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
    return {
        "attempt": node.id,
        "body": node.model_dump(
            mode="json",
            exclude={"id": True, "parent": True, "action": True, "candidate": {"source"}},
        ),
        "role": node.role,
        "status": node.evaluation.status,
        "latency_ms": node.latency_ms,
        "speedup_vs_eager": node.speedup_vs_eager,
        "assured_speedup": node.assured_speedup,
        "tokens": node.usage.tokens,
        "dollars": node.usage.dollars,
    }


def promotion_values(evaluation: Evaluation) -> Json:
    """The row of a final check."""
    found = evaluation.speedup_vs("eager") if isinstance(evaluation, Correct) else None
    return {
        "body": evaluation.model_dump(mode="json"),
        "status": evaluation.status,
        "latency_ms": evaluation.latency_ms if isinstance(evaluation, Correct) else None,
        "speedup_vs_eager": found.ratio if found else None,
        "assured_speedup": found.low if found else None,
    }


def read_evaluation(body: Json) -> Evaluation:
    """What a final check found."""
    return evaluation_adapter.validate_python(body)


def read_node(attempt: int, parent: int, action: str, body: Json, source: str | None) -> Node:
    """The node that `node_values` was made from; `source` is None where there is no candidate."""
    candidate = None if source is None else body["candidate"] | {"source": source}
    selection = {"id": attempt, "parent": parent, "action": action}
    return Node.model_validate(body | selection | {"candidate": candidate})
