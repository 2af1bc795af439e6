"""What the page asks for, as JSON. Texts may contain lone surrogates, so the JSON is ASCII."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from stark.benches.document import report_document
from stark.benches.report import make_report
from stark.benches.tables import sheets
from stark.page.devices import devices_document
from stark.report.attempt_document import node_document
from stark.report.document import run_document
from stark.report.node import node_of
from stark.report.runs_document import runs_document
from stark.report.view import RunView
from stark.store import Store


def runs(store: Store) -> bytes:
    """Every run in short."""
    return encoded(runs_document(store))


def run(store: Store, run_id: str) -> bytes:
    """A run with its attempts in short."""
    return encoded(run_document(RunView.in_short(store, run_id)))


def attempt(store: Store, run_id: str, attempt: int) -> bytes:
    """One attempt in full."""
    view = RunView.in_short(store, run_id, attempt)
    return encoded(node_document(view, node_of(view, attempt)))


def bench(store: Store, name: str) -> bytes:
    """A bench: its report with its tables."""
    report = make_report(store, store.bench(name))
    tables = [sheet._asdict() for sheet in sheets(report)]
    return encoded({"version": 1, **report_document(report), "tables": tables})


def devices(store: Store) -> bytes:
    """The devices that the runs were judged on, and what waits for them."""
    return encoded(devices_document(store))


def encoded(document: BaseModel | dict[str, Any]) -> bytes:
    """A document as JSON."""
    plain = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    return json.dumps(plain, separators=(",", ":")).encode("ascii")
