"""A run, an attempt or an evaluation as plain data: the output of `--json`.

Derived figures (latency, speedup, share of the roofline) are included. An unknown number is null.
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
    """A run with its finished attempts; their sources and model calls are in `node_document`."""
    failures, repaired = failures_repaired(view.nodes)
    standing, reference = view.standing, view.reference
    return {
        "run": view.run.model_dump(mode="json"),
        "reference": None if reference is None else reference.model_dump(mode="json"),
        "reference_latency_ms": None if reference is None else reference.latency_ms,
        "attempts": list(map(attempt_document, sorted(view.nodes, key=lambda node: node.id))),
        "ended": None if view.ended is None else view.ended.model_dump(mode="json"),
        "best": standing.best,
        "group": standing.group,
        "confirmed": standing.confirmed,
        "final_checks": {
            attempt: evaluation_summary(found) for attempt, found in view.promotions.items()
        },
        "correct": sum(node.works for node in view.nodes),
        "failures_taken_up": failures,
        "failures_repaired": repaired,
        "spent": view.spent.model_dump(mode="json"),
        "roles": {role: spent.model_dump(mode="json") for role, spent in view.roles.items()},
    }


def attempt_document(node: Node) -> Document:
    """An attempt in short: its parent, plan and result."""
    return {
        "attempt": node.id,
        "parent": node.parent,
        "action": node.action,
        "role": node.role,
        "title": node.plan.name if node.plan else None,
        "strategy": node.plan.strategy if node.plan else None,
        "duplicate_of": node.duplicate_of,
        **evaluation_summary(node.evaluation),
    }


def node_document(view: RunView, node: Node) -> Document:
    """An attempt with its source and model calls."""
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
    """Status, evidence and derived figures."""
    summary: Document = {"status": evaluation.status, "evidence": explain(evaluation)}
    if not isinstance(evaluation, Correct):
        unknown = dict.fromkeys(("latency_ms", "roofline_fraction", "accuracy", "bottleneck"))
        failed = {} if evaluation.case is None else {"case": evaluation.case}
        return {**summary, **failed, **unknown, "speedups": {}}
    profiled, speedups = evaluation.profiled, map(evaluation.speedup_vs, evaluation.references)
    return {
        **summary,
        "latency_ms": evaluation.latency_ms,
        "speedups": {each.reference: each.model_dump(mode="json") for each in speedups},
        "roofline_fraction": evaluation.roofline_fraction,
        "accuracy": evaluation.accuracy.model_dump(mode="json"),
        "bottleneck": None
        if profiled is None
        else {"kind": profiled.bottleneck.kind, "text": bottleneck_text(profiled)},
        **_cases(evaluation),
    }


def _cases(correct: Correct) -> Document:
    """The objective and each case, if the problem has cases. `bottleneck` is then the main case's."""
    if correct.weighing is None:
        return {}
    return {
        "objective": correct.weighing.objective,
        "main_case": correct.weighing.main,
        "cases": {
            case: {"weight": correct.weighing.weights[case], **evaluation_summary(each)}
            for case, each in correct.cases.items()
        },
    }
