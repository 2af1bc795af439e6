"""The report as files in one folder, to be read, plotted and sent on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from stark.bench.document import report_document, role_rows, run_row, summary_rows, to_csv
from stark.bench.plots import plots
from stark.bench.report import Report
from stark.bench.tables import markdown
from stark.core.errors import UsageError


def write_report(report: Report, folder: Path) -> None:
    """Write report.md, report.json, summary.csv, roles.csv, runs.csv and the pictures; these as PNG too where cairosvg is installed.

    Raises UsageError when it cannot be written.
    """
    pictures = plots(report)
    texts = {
        "report.md": markdown(report, list(pictures)),
        "report.json": json.dumps(report_document(report), indent=1, ensure_ascii=False) + "\n",
        "summary.csv": to_csv(summary_rows(report.summaries)),
        "roles.csv": to_csv(role_rows(report.summaries)),
        "runs.csv": to_csv([run_row(result) for result in report.results]),
        **pictures,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
        for name, picture in _pngs(pictures).items():
            (folder / name).write_bytes(picture)
    except OSError as error:
        raise UsageError(
            f"the report cannot be written to {folder}: {error.strerror}; choose another --output"
        ) from error


def _pngs(pictures: Mapping[str, str]) -> dict[str, bytes]:
    """The pictures as PNG, if the library for it is there."""
    try:
        from cairosvg import svg2png
    except ImportError:
        return {}
    return {
        str(Path(name).with_suffix(".png")): svg2png(bytestring=text.encode(), scale=2)
        for name, text in pictures.items()
    }
