"""A run as text: what was asked, on which device, the tree, the fastest kernels and what was spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stark.core.evaluation import STATUSES, Correct
from stark.core.usage import Spent
from stark.explain.evaluation import checked, speedup_cell
from stark.explain.numbers import counted, first_line, milliseconds
from stark.explain.profile import bottleneck_text
from stark.explain.run import (
    budget_line,
    dollars,
    idea,
    models_line,
    reference_line,
    replay_line,
)
from stark.report.spending import spending, thousands
from stark.report.tables import STATUS_STYLES, facts
from stark.report.tree import TreeTable
from stark.report.view import RunView
from stark.search.leaderboard import leaderboard
from stark.search.repairs import failures_repaired
from stark.store import RunSummary

LEADERS = 5


def run_text(view: RunView, columns: int) -> RenderableType:
    """Everything about a run on one screen, or a few."""
    parts: list[RenderableType] = [header(view)]
    if view.reference is not None:
        tree = TreeTable(view.tree, view.run.problem.name, checked=view.promotions)
        parts += ["", tree.table(columns)]
    if any(node.works for node in view.nodes):
        parts += ["", _leaders(view)]
    for attempt, found in view.promotions.items():
        parts += ["", Text(f"final check of attempt {attempt}: {checked(found)}")]
    ended = () if view.ended is None else (Text(f"ended: {view.ended.detail}"),)
    return Group(*parts, "", _counts(view), *_spent(view), *ended)


def _spent(view: RunView) -> Iterator[RenderableType]:
    """What the models took, and how many of their prompts had to be cut."""
    if view.run.is_replay:
        yield Text(f"{view.spent.calls} recorded replies; no model was asked and nothing paid")
        return
    if not view.roles:
        yield Text("no model was asked")
        return
    yield from spending(view.roles)
    fits = [call.fit for call in view.calls if call.fit is not None]
    if cut := sum(bool(fit.cuts) for fit in fits):
        yield Text(
            f"{cut} of {len(view.calls)} prompts were cut to fit {view.run.config.window_tokens:,} tokens; `stark show "
            f"{view.run.id} ATTEMPT` says what was left out"
        )


def header(view: RunView) -> RenderableType:
    """Problem, strategy, models, device and reference."""
    run = view.run
    table = facts()
    table.add_row("run", f"{run.id}, {run.created:%Y-%m-%d %H:%M} UTC, STARK {run.version}")
    table.add_row("problem", run.problem.name)
    table.add_row(
        "strategy", f"{run.config.strategy.name}, in {run.config.language}, seed {run.config.seed}"
    )
    table.add_row("models", models_line(run))
    if run.is_replay:
        table.add_row("replay", replay_line(run))
    table.add_row("budget", budget_line(run.config.budget))
    if view.reference is None:
        table.add_row("reference", "not measured yet")
        return table
    device = view.reference.device
    table.add_row(
        "device", f"{device.name} ({device.architecture}), by {first_line(run.config.executor)}"
    )
    table.add_row("reference", reference_line(view.reference))
    if view.reference.profiled is not None:
        table.add_row("", Text(bottleneck_text(view.reference.profiled)))
    for warning in view.reference.warnings:
        table.add_row("warning", Text(warning, "yellow"))
    return table


def runs_table(summaries: Iterable[RunSummary], spent: Mapping[str, Mapping[str, Spent]]) -> Table:
    """One line per run, the newest first; `spent` has what its calls took, by run."""
    took = {run_id: sum(roles.values(), Spent()) for run_id, roles in spent.items()}
    priced = any(whole.dollars or not whole.unpriced_calls for whole in took.values())
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("run", "begun", "strategy", "language"):
        table.add_column(name, no_wrap=True)
    for name in (
        "attempts",
        "correct",
        "best",
        "speedup",
        "tokens",
        *(["price"] if priced else []),
    ):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("ended")
    for each in summaries:
        whole = took.get(each.id)
        price = "" if whole is None else dollars(whole)
        table.add_row(
            each.id,
            f"{each.created:%m-%d %H:%M}",
            each.strategy,
            each.language,
            f"{each.attempts}/{each.budget_attempts}",
            str(each.correct),
            "" if each.latency_ms is None else milliseconds(each.latency_ms),
            "" if each.speedup is None else f"{each.speedup.ratio:.2f}x",
            "" if whole is None else thousands(whole),
            *([price] if priced else []),
            each.ended.detail if each.ended else Text("not yet", "yellow"),
        )
    return table


def _leaders(view: RunView) -> Table:
    table = Table(
        title="fastest correct kernels, as the search measured them",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
        expand=True,
    )
    for name in ("attempt", "latency", "vs eager [95 %]", "roofline"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("idea", no_wrap=True, overflow="ellipsis", ratio=1)
    for node in leaderboard(view.tree, LEADERS):
        assert isinstance(node.evaluation, Correct)
        table.add_row(
            str(node.id),
            milliseconds(node.evaluation.latency_ms),
            speedup_cell(node.evaluation.speedup_vs("eager")),
            f"{node.evaluation.roofline_fraction:.0%}",
            Text(idea(node), "dim"),
        )
    return table


def _counts(view: RunView) -> Text:
    """How the attempts ended, and what debug made of the failed ones."""
    found = Counter[str](node.evaluation.status for node in view.nodes)
    text = Text(f"{counted(len(view.nodes), 'attempt')}: ")
    parts = [
        Text(f"{found[name]} {name.replace('_', ' ')}", STATUS_STYLES[name])
        for name in STATUSES
        if found[name]
    ]
    text.append_text(Text(", ").join(parts) if parts else Text("none finished"))
    taken, mended = failures_repaired(view.nodes)
    if taken:
        text.append(f"; debug took up {taken} failed and repaired {mended}")
    return text
