"""The report as a JSON document and as rows for CSV files.

Numbers are not rounded. Values that are unknown or not measured are null in JSON and empty in CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from stark.benches.metrics import Spread, Summary
from stark.benches.report import Report
from stark.benches.results import Result
from stark.core.usage import Spent

Row = dict[str, Any]


def report_document(report: Report) -> Row:
    """The whole report: the request, the summaries, the differences and every run."""
    return {
        "bench": report.bench.model_dump(mode="json", exclude={"cells"}),
        "notes": report.notes,
        "compared_runs": [result.cell.run_id for result in report.compared],
        "summaries": [_summary(one) for one in report.summaries],
        "own_summaries": [_summary(one) for one in report.own_summaries],
        "differences": [one.model_dump(mode="json") for one in report.differences],
        "best_by_attempt": [
            {"level": level, "strategy": strategy, "geomean_all": course}
            for (level, strategy), course in report.courses.items()
        ],
        "runs": [run_row(result) for result in report.results],
    }


def run_row(result: Result) -> Row:
    """One run: its cell, its progress and its best kernel."""
    cell, outcome, best = result.cell, result.outcome, result.best
    references = best.references if best else ()
    return {
        **cell.model_dump(mode="json"),
        "ended": result.ended_reason,
        "attempts": len(outcome.attempts),
        "correct": sum(attempt.works for attempt in outcome.attempts),
        "latency_ms": best.latency_ms if best else None,
        **{f"speedup_vs_{name}": result.speedup(name) for name in references},
        "speedup_vs_eager_low": best.speedup_vs("eager").low if best else None,
        "roofline_fraction": best.roofline_fraction if best else None,
        **_cost(outcome.spent),
        "active_s": outcome.elapsed_s,
    }


def summary_rows(summaries: Sequence[Summary]) -> list[Row]:
    """One row per level, strategy and reference."""
    rows = []
    for one in summaries:
        whole = one.model_dump(mode="json", exclude={"against", "roles", "spent"}) | _cost(
            one.spent
        )
        for name, against in one.against.items():
            row: Row = {**whole, "repaired_share": one.repaired_share, "reference": name}
            if against is not None:
                row |= {f"fast_{p:g}": share for p, share in against.fast.items()}
                row |= {"measured": against.measured, "kernels": against.kernels}
                row |= {"clearly_faster": against.clearly_faster}
                row |= _spread_columns("all", against.of_all)
                row |= _spread_columns("correct", against.of_correct)
            rows.append(row)
    return rows


def role_rows(summaries: Sequence[Summary]) -> list[Row]:
    """One row per level, strategy and role."""
    return [
        {
            "level": one.level,
            "strategy": one.strategy,
            "role": role,
            **spent.model_dump(mode="json"),
        }
        for one in summaries
        for role, spent in one.roles.items()
    ]


def to_csv(rows: Sequence[Row]) -> str:
    """CSV with the columns of all rows, in the order of first use."""
    columns = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _summary(one: Summary) -> Row:
    return one.model_dump(mode="json") | {"repaired_share": one.repaired_share}


def _cost(spent: Spent) -> Row:
    """Dollars are null where the price of a call is unknown."""
    return {
        "calls": spent.calls,
        "tokens": spent.tokens,
        "dollars": None if spent.unpriced_calls else spent.dollars,
    }


def _spread_columns(over: str, spread: Spread | None) -> Row:
    return {} if spread is None else {f"{k}_{over}": v for k, v in spread.model_dump().items()}
