"""The report of a bench as a JSON document and as files: Markdown, JSON, CSV and pictures.

Numbers are not rounded. Values that are unknown or not measured are null in JSON and empty in CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from stark.benches.compare import Difference
from stark.benches.metrics import Summary, tuning_gain
from stark.benches.plots import plots
from stark.benches.report import Report
from stark.benches.results import Result
from stark.benches.tables import markdown
from stark.core.base import Frozen
from stark.core.bench import Bench, Cell
from stark.core.errors import UsageError
from stark.core.usage import Spent

Row = dict[str, Any]


class BenchHead(Bench):
    """A bench without its grid."""

    cells: tuple[Cell, ...] = Field(default=(), exclude=True)


class Course(Frozen):
    """The geometric mean speedup of all runs after each attempt, for one level and strategy."""

    level: str
    strategy: str
    geomean_all: tuple[float, ...]


class ReportDocument(Frozen):
    """The report of a bench. What the fields mean: `benches.report.Report`."""

    version: Literal[1] = 1
    bench: BenchHead
    notes: tuple[str, ...]
    compared_runs: tuple[str, ...]
    summaries: tuple[Summary, ...]
    own_summaries: tuple[Summary, ...]
    differences: tuple[Difference, ...]
    best_by_attempt: tuple[Course, ...]
    runs: tuple[Row, ...]
    """As in runs.csv."""

    classes: tuple[Row, ...]
    """As in classes.csv; empty unless leaders were judged on several kinds of machines."""


def report_document(report: Report) -> ReportDocument:
    """The whole report: the bench, the notes, the metrics and every run."""
    return ReportDocument(
        bench=BenchHead(**dict(report.bench)),
        notes=tuple(report.notes),
        compared_runs=tuple(result.cell.run_id for result in report.compared),
        summaries=report.summaries,
        own_summaries=report.own_summaries,
        differences=report.differences,
        best_by_attempt=tuple(
            Course(level=level, strategy=strategy, geomean_all=tuple(course))
            for (level, strategy), course in report.courses.items()
        ),
        runs=tuple(run_row(result) for result in report.results),
        classes=tuple(class_rows(report.results)),
    )


def run_row(result: Result) -> Row:
    """One run: its cell of the grid (problem, strategy and seed), its progress and its best kernel."""
    cell, outcome, best = result.cell, result.outcome, result.best
    references = best.references if best else ()
    return {
        **cell.model_dump(mode="json"),
        "ended": result.ended_reason,
        "attempts": len(outcome.made),
        "correct": sum(attempt.works for attempt in outcome.made),
        "tuning_gain": tuning_gain(outcome),
        "latency_ms": best.latency_ms if best else None,
        **{f"speedup_vs_{name}": result.speedup(name) for name in references},
        "speedup_vs_eager_low": best.speedup_vs("eager").low if best else None,
        "roofline_fraction": best.roofline_fraction if best else None,
        "relative_rms": best.accuracy.relative_rms if best else None,
        "reference_relative_rms": best.accuracy.reference_relative_rms if best else None,
        "error_budget": best.accuracy.budget if best else None,
        "precision": best.accuracy.precision if best else None,
        "precision_met": best.accuracy.meets if best else None,
        **_cost(outcome.spent),
        "active_s": outcome.elapsed_s,
    }


def class_rows(results: Iterable[Result]) -> Iterator[Row]:
    """One row per leader and kind of machine, with what was measured there. `own` is the kind that ranks."""
    for result in results:
        for number, (kind, checks) in enumerate(result.outcome.classes.items()):
            for attempt, found in checks.items():
                row: Row = {**result.cell.model_dump(mode="json"), "attempt": attempt}
                row["best"] = attempt == result.outcome.best_attempt
                row |= {"device_class": kind, "own": number == 0, "status": found.status}
                row["latency_ms"] = found.latency_ms
                for name, speedup in found.speedups.items():
                    row[f"{name}_ms"] = found.references_ms[name]
                    row[f"speedup_vs_{name}"] = speedup.ratio
                    row[f"speedup_vs_{name}_low"] = speedup.low
                    row[f"speedup_vs_{name}_high"] = speedup.high
                yield row


def summary_rows(summaries: Sequence[Summary]) -> list[Row]:
    """One row per level, strategy and reference."""
    rows = []
    for one in summaries:
        whole = one.model_dump(exclude={"against", "roles"}) | _cost(one.spent)
        for name, against in one.against.items():
            row = {**whole, "reference": name}
            row |= {f"fast_{p:g}": share for p, share in against.fast.items()}
            row |= against.model_dump(include={"measured", "kernels", "clearly_faster"})
            for over, spread in (("all", against.of_all), ("correct", against.of_correct)):
                if spread is not None:
                    row |= {f"{figure}_{over}": value for figure, value in spread}
            rows.append(row)
    return rows


def role_rows(summaries: Sequence[Summary]) -> list[Row]:
    """One row per level, strategy and role."""
    return [
        {"level": one.level, "strategy": one.strategy, "role": role, **spent.model_dump()}
        for one in summaries
        for role, spent in one.roles.items()
    ]


def write_report(report: Report, folder: Path) -> None:
    """Write report.md, report.json, summary.csv, roles.csv, runs.csv and, if matplotlib is installed, SVG pictures.

    If leaders were judged on several kinds of machines, also classes.csv.

    Raises UsageError if the folder cannot be written to.
    """
    pictures = plots(report)
    texts = {
        "report.md": markdown(report, None if pictures is None else list(pictures)),
        "report.json": report_document(report).model_dump_json(indent=1) + "\n",
        "summary.csv": to_csv(summary_rows(report.summaries)),
        "roles.csv": to_csv(role_rows(report.summaries)),
        "runs.csv": to_csv([run_row(result) for result in report.results]),
    }
    if rows := list(class_rows(report.results)):
        texts["classes.csv"] = to_csv(rows)
    files = {name: text.encode() for name, text in texts.items()} | (pictures or {})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"the report cannot be written to {folder}: {error.strerror}; choose another folder"
        ) from error


def to_csv(rows: Sequence[Row]) -> str:
    """CSV with every column that any row has, in the order in which the columns first occur."""
    columns = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cost(spent: Spent) -> Row:
    """What the model calls cost; dollars are null if the price of any call is unknown."""
    return {
        "calls": spent.calls,
        "tokens": spent.tokens,
        "dollars": None if spent.unpriced_calls else spent.dollars,
    }
