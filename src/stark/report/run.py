"""A run as text: its configuration and device, the tree, the fastest kernels and the spending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stark.core.evaluation import Correct
from stark.core.usage import Spent
from stark.explain.evaluation import (
    checked,
    eager_then,
    precision_met,
    ratio_text,
    roofline_share,
    roofline_text,
    speedup_text,
)
from stark.explain.numbers import counted, listed, milliseconds
from stark.explain.run import dollars, idea, standing_lines
from stark.report.attempt_document import attempt_document
from stark.report.document import leaders
from stark.report.facts import WARNING, run_facts
from stark.report.one_roofline import on_one_roofline
from stark.report.spending import spending, thousands
from stark.report.tables import STATUS_STYLES, columns, facts
from stark.report.tree import TreeTable
from stark.report.view import RunView
from stark.search.repairs import failures_repaired
from stark.store import RunSummary

ROOM_FOR_ERRORS = 80
"""On a screen with fewer characters per line, the fastest kernels are shown without their errors."""


def run_text(view: RunView, width: int) -> RenderableType:
    """Everything about a run."""
    parts: list[RenderableType] = [header(view)]
    if view.reference is not None:
        tree = TreeTable(view.tree, view.run.problem.name, checked=view.promotions)
        parts += ["", tree.table(width)]
    parts += _leaders(view, width)
    for attempt, found in view.promotions.items():
        parts += ["", Text(f"final check of attempt {attempt}: {checked(found)}")]
    ended = () if view.ended is None else (Text(f"ended: {view.ended.detail}"),)
    return Group(*parts, "", _counts(view), *_spent(view), *ended)


def _spent(view: RunView) -> Iterator[RenderableType]:
    """The models' usage, and how many prompts were cut to fit their limit."""
    if view.run.is_replay:
        yield Text(
            f"{view.spent.calls} recorded replies; no model was called, and nothing was paid"
        )
        return
    waiting = [counted(view.in_flight, "call") + " in flight"] if view.in_flight else []
    failed = [counted(view.failed, "call") + " failed"] if view.failed else []
    if not view.roles:
        yield Text(", ".join([*waiting, *failed]) or "no model was called")
        return
    yield from spending(view.roles)
    if waiting or failed:
        yield Text(", ".join([*waiting, *failed]))
    fits = [call.fit for call in view.calls if call.fit is not None]
    if cut := sum(bool(fit.cuts) for fit in fits):
        limit = f"{view.run.config.window_tokens:,} tokens; `stark show {view.run.id} ATTEMPT` lists the cuts"
        yield Text(f"{cut} of {len(view.calls)} prompts were cut to fit {limit}")


def header(view: RunView) -> RenderableType:
    """The run's configuration, device and reference."""
    table = facts()
    for name, text in run_facts(view):
        table.add_row(Text(name), Text(text, "yellow" if name == WARNING else ""))
    return table


def runs_table(summaries: Iterable[RunSummary], spent: Mapping[str, Mapping[str, Spent]]) -> Table:
    """One line per run, newest first; `spent` is the usage by run and role."""
    totals = {run_id: sum(roles.values(), Spent()) for run_id, roles in spent.items()}
    priced = any(total.dollars or not total.unpriced_calls for total in totals.values())
    numbers = ("attempts", "correct", "best", "speedup", "tokens", *(["price"] if priced else []))
    table = columns("run", "begun", "strategy", "language", numbers=numbers)
    table.add_column("ended")
    for each in summaries:
        total = totals.get(each.id)
        price = [] if not priced else ["" if total is None else dollars(total)]
        table.add_row(
            each.id,
            f"{each.created:%m-%d %H:%M}",
            each.strategy,
            each.language,
            f"{each.attempts}/{each.budget_attempts}",
            str(each.correct),
            "" if each.latency_ms is None else milliseconds(each.latency_ms),
            "" if each.speedup is None else ratio_text(each.speedup),
            "" if total is None else thousands(total),
            *price,
            each.ended.detail if each.ended else Text("not yet", "yellow"),
        )
    return table


def _leaders(view: RunView, width: int) -> Iterator[RenderableType]:
    """The fastest attempts, as the search measured them, and what their marks mean.

    The best attempt and those that cannot be told apart from it come first. A narrow screen has no room for their errors.
    """
    fastest = leaders([attempt_document(node) for node in view.nodes], view.promotions)
    if not fastest:
        return
    yield Text("\nfastest correct kernels, as the search measured them", "bold")
    own_ms = view.tree.root_latency_ms
    has_room = width >= ROOM_FOR_ERRORS
    errors = ("error", "meets") if has_room else ()
    table = columns(numbers=("attempt", "latency", "vs eager [95 %]", "roofline", *errors))
    table.add_column(no_wrap=True, ratio=1)
    table.expand = True
    correct = {
        id: found
        for id in fastest
        if isinstance(
            found := on_one_roofline(view.tree.node(id).evaluation, view.reference), Correct
        )  # as all of them are
    }
    beating = [id for id, found in correct.items() if not found.roofline_is_known]
    for id, found in correct.items():
        node = view.tree.node(id)
        mark = "★" if id == view.standing.best else "=" if id in view.standing.group else ""
        speedup = speedup_text(found.speedup_vs("eager"), named=False) + eager_then(found, own_ms)
        share = "unknown" if beating else roofline_share(found)
        latency, note = milliseconds(found.latency_ms), Text(idea(node), "dim")
        error = (f"{found.accuracy.relative_rms:.2g}", precision_met(found)) if has_room else ()
        table.add_row(f"{mark} {id}", latency, speedup, share, *error, note)
    yield table
    yield from map(Text, standing_lines(view.standing))
    if beating:
        yield Text(f"{listed(beating)}: {roofline_text(correct[beating[0]])}", "yellow")


def _counts(view: RunView) -> Text:
    """How many attempts ended with each status, and how many failures were repaired."""
    found = Counter[str](node.evaluation.status for node in view.nodes)
    text = Text(f"{counted(len(view.nodes), 'attempt')}: ")
    parts = [
        Text(f"{found[name]} {name.replace('_', ' ')}", style)
        for name, style in STATUS_STYLES.items()
        if found[name]
    ]
    text.append_text(Text(", ").join(parts) if parts else Text("none finished"))
    failures, repaired = failures_repaired(view.nodes)
    if failures:
        text.append(f"; {counted(failures, 'failure')} debugged, {repaired} repaired")
    return text
