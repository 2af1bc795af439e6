"""All runs of a store as one document: a line per run, with what it achieved and what it cost."""

from __future__ import annotations

from typing import Literal

from stark.core.base import Frozen
from stark.core.usage import Spent
from stark.explain.evaluation import speedup_text
from stark.explain.numbers import milliseconds
from stark.explain.run import dollars
from stark.report.spending import thousands
from stark.store import RunSummary, Store


class RunLine(RunSummary):
    """One run in a list."""

    roles: dict[str, Spent]
    in_flight: bool
    """Whether calls are in flight, including calls that a killed process left in flight."""

    latency_text: str
    speedup_text: str
    tokens_text: str
    price_text: str


class RunsDocument(Frozen):
    """Every run, the newest first, and the benches, the newest first."""

    version: Literal[1] = 1
    runs: tuple[RunLine, ...]
    benches: tuple[str, ...]


def runs_document(store: Store) -> RunsDocument:
    """The runs and benches of a store."""
    spent, in_flight = store.spent(), store.in_flight()
    lines = (
        _line(each, spent.get(each.id, {}), each.id in in_flight) for each in store.summaries()
    )
    return RunsDocument(runs=tuple(lines), benches=tuple(reversed(store.benches())))


def _line(summary: RunSummary, roles: dict[str, Spent], in_flight: bool) -> RunLine:
    total = sum(roles.values(), Spent())
    return RunLine(
        **dict(summary),
        roles=roles,
        in_flight=in_flight,
        latency_text="" if summary.latency_ms is None else milliseconds(summary.latency_ms),
        speedup_text=speedup_text(summary.speedup, named=False) if summary.speedup else "",
        tokens_text=thousands(total) if roles else "",
        price_text=dollars(total) if roles else "",
    )
