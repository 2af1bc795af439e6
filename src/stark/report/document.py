"""A run, an attempt or an evaluation as plain data for programs: what `--json` prints.

Everything derived (latency, speedup, share of the roofline) is written out, so that a reader needs
no formula of ours. An unknown number is null; tokens by role tell apart what models told and what is estimated.
"""

from __future__ import annotations

from typing import Any

from stark.core.call import spent_by_role
from stark.core.evaluation import Correct, Evaluation
from stark.core.node import Node
from stark.explain.evaluation import explain
from stark.explain.profile import bottleneck_text
from stark.report.view import RunView
from stark.search.repairs import failures_repaired

Document = dict[str, Any]


def run_document(view: RunView) -> Document:
    """The run with all of its finished attempts; sources and model calls are in the attempts' own documents."""
    taken, mended = failures_repaired(view.nodes)
    winner = view.winner
    reference = view.reference
    return {
        "run": view.run.model_dump(mode="json"),
        "reference": None if reference is None else reference.model_dump(mode="json"),
        "reference_latency_ms": None if reference is None else reference.eager.latency_ms,
        "attempts": [
            attempt_document(node) for node in sorted(view.nodes, key=lambda node: node.id)
        ],
        "ended": None if view.ended is None else view.ended.model_dump(mode="json"),
        "best": None if winner is None else winner.id,
        "final_checks": {
            attempt: evaluation_summary(found) for attempt, found in view.promotions.items()
        },
        "correct": sum(node.works for node in view.nodes),
        "failures_taken_up": taken,
        "failures_repaired": mended,
        "spent": view.spent.model_dump(mode="json"),
        "roles": {role: spent.model_dump(mode="json") for role, spent in view.roles.items()},
    }


def attempt_document(node: Node) -> Document:
    """An attempt in short: where it started, how it ended and what it cost."""
    return {
        "attempt": node.id,
        "parent": node.parent,
        "action": node.action,
        "role": node.role,
        "strategy": node.plan.strategy if node.plan else None,
        **evaluation_summary(node.evaluation),
    }


def node_document(view: RunView, node: Node) -> Document:
    """An attempt in full, with its model calls."""
    calls = [call for call in view.calls if call.attempt == node.id]
    return {
        **attempt_document(node),
        "node": node.model_dump(mode="json"),
        "calls": [call.model_dump(mode="json") for call in calls],
        "roles": {
            role: spent.model_dump(mode="json") for role, spent in spent_by_role(calls).items()
        },
    }


def evaluation_summary(evaluation: Evaluation) -> Document:
    """Status, evidence and the derived numbers."""
    summary: Document = {"status": evaluation.status, "evidence": explain(evaluation)}
    if not isinstance(evaluation, Correct):
        unknown = dict.fromkeys(("latency_ms", "roofline_fraction", "bottleneck"))
        return {**summary, **unknown, "speedups": {}}
    return {
        **summary,
        "latency_ms": evaluation.latency_ms,
        "speedups": {
            name: evaluation.speedup_vs(name).model_dump(mode="json")
            for name in evaluation.references
        },
        "roofline_fraction": evaluation.roofline_fraction,
        "bottleneck": _bottleneck(evaluation),
    }


def _bottleneck(correct: Correct) -> Document | None:
    profiled = correct.profiled
    if profiled is None:
        return None
    return {"kind": profiled.bottleneck.kind, "text": bottleneck_text(profiled)}
