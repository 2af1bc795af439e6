"""All runs of a store as one document: a line per run, with what it achieved and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from stark.core.base import Frozen
from stark.core.evaluation import Correct
from stark.core.measurement import Speedup, speedup
from stark.core.usage import Spent
from stark.explain.evaluation import speedup_text
from stark.explain.numbers import milliseconds
from stark.explain.run import dollars
from stark.report.spending import thousands
from stark.store import RunSummary, Store


class RunLine(RunSummary):
    """One run in a list."""

    file: str | None = None
    """The name of the recording that the run was read from; null for a run of the store."""

    roles: dict[str, Spent]
    in_flight: bool
    """Whether a process works on the run and calls are in flight."""

    vs_compile: Speedup | None
    """Speedup of the best attempt against torch.compile in the final check; null if there was none."""

    latency_text: str
    speedup_text: str
    compile_text: str
    tokens_text: str
    price_text: str


class RunsDocument(Frozen):
    """Every run, the newest first, and the benches, the newest first."""

    version: Literal[1] = 1
    runs: tuple[RunLine, ...]
    benches: tuple[str, ...]


Compiled = dict[tuple[str, int], Speedup | None]
"""Speedups against torch.compile that were read before, by run and attempt. They never change."""


def runs_document(
    store: Store, compiled: Compiled | None = None, files: Mapping[str, str] | None = None
) -> RunsDocument:
    """The runs and benches of a store. What is missing in `compiled` is read and added.

    `files` has the names of recordings, by run.
    """
    compiled, files = {} if compiled is None else compiled, files or {}
    spent, in_flight = store.spent(), set(filter(store.worked_on, store.in_flight()))
    lines = (
        _line(
            each,
            files.get(each.id),
            spent.get(each.id, {}),
            each.id in in_flight,
            _compiled(store, each, compiled),
        )
        for each in store.summaries()
    )
    return RunsDocument(runs=tuple(lines), benches=tuple(reversed(store.benches())))


def _compiled(store: Store, summary: RunSummary, known: Compiled) -> Speedup | None:
    """The speedup of a run's best attempt against torch.compile."""
    if summary.best_attempt is None or not summary.confirmed:
        return None
    which = summary.id, summary.best_attempt
    if which not in known:
        found = store.promotion(*which)
        if isinstance(found, Correct) and "compile" in found.references:
            known[which] = found.speedup_vs("compile")
        else:
            known[which] = None
        speedup.cache_clear()  # it would keep all samples
    return known[which]


def _line(
    summary: RunSummary,
    file: str | None,
    roles: dict[str, Spent],
    in_flight: bool,
    vs_compile: Speedup | None,
) -> RunLine:
    total = sum(roles.values(), Spent())
    return RunLine(
        **dict(summary),
        file=file,
        roles=roles,
        in_flight=in_flight,
        vs_compile=vs_compile,
        latency_text="" if summary.latency_ms is None else milliseconds(summary.latency_ms),
        speedup_text=speedup_text(summary.speedup, named=False) if summary.speedup else "",
        compile_text=speedup_text(vs_compile, named=False) if vs_compile else "",
        tokens_text=thousands(total) if roles else "",
        price_text=dollars(total) if roles else "",
    )
