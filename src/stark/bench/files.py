"""Writes the report to a folder: Markdown, JSON, CSV and pictures."""

from __future__ import annotations

import json
from pathlib import Path

from stark.bench.document import report_document, role_rows, run_row, summary_rows, to_csv
from stark.bench.plots import plots
from stark.bench.report import Report
from stark.bench.tables import markdown
from stark.core.errors import UsageError


def write_report(report: Report, folder: Path) -> None:
    """Write report.md, report.json, summary.csv, roles.csv, runs.csv and, if matplotlib is installed, SVG pictures.

    Raises UsageError if the folder cannot be written to.
    """
    pictures = plots(report)
    texts = {
        "report.md": markdown(report, None if pictures is None else list(pictures)),
        "report.json": json.dumps(report_document(report), indent=1, ensure_ascii=False) + "\n",
        "summary.csv": to_csv(summary_rows(report.summaries)),
        "roles.csv": to_csv(role_rows(report.summaries)),
        "runs.csv": to_csv([run_row(result) for result in report.results]),
    }
    files = {name: text.encode() for name, text in texts.items()} | (pictures or {})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"the report cannot be written to {folder}: {error.strerror}; choose another folder"
        ) from error
