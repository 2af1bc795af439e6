"""A run as text, from its document: its configuration and device, the tree, the fastest kernels and the spending."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stark.core.run import AGENT
from stark.core.usage import Spent
from stark.explain.evaluation import BESIDE_NOTE, accuracy_text, ratio_text, speedup_text
from stark.explain.numbers import counted, listed, milliseconds
from stark.report.document import RunDocument
from stark.report.evaluation_document import EvaluationDocument
from stark.report.facts import WARNING
from stark.report.runs_document import RunLine
from stark.report.spending import spending
from stark.report.tables import STATUS_STYLES, brief, columns, facts
from stark.report.tree import TreeTable

ROOM_FOR_ERRORS = 80
"""On a screen with fewer characters per line, the fastest kernels are shown without their errors."""


def run_text(document: RunDocument, width: int) -> RenderableType:
    """Everything about a run."""
    parts: list[RenderableType] = [_header(document)]
    if document.reference_latency_ms is not None:
        tree = TreeTable(
            brief(document.run.problem.name, 200),
            milliseconds(document.reference_latency_ms),
            {each.attempt: each for each in document.attempts},
            {each.attempt: each for each in document.pending},
            document.best,
            steps={each.attempt: Text(each.text, "dim") for each in document.pending},
            doubtful=any(each.meaning == "noisy" for each in document.headline.claims[:1]),
        )
        parts += ["", tree.table(width)]
    parts += _leaders(document, width)
    for attempt, found in document.final_checks.items():
        parts += ["", Text(f"final check of attempt {attempt}: {_checked(found)}")]
    parts += _elsewhere(document)
    ended = () if document.ended is None else (Text(f"ended: {document.ended.detail}"),)
    spent = spending(document.spending, document.spending_notes)
    return Group(*parts, "", _counts(document), *spent, *ended)


def _header(document: RunDocument) -> RenderableType:
    """The run's configuration, device and reference."""
    table = facts()
    for name, text in document.facts:
        table.add_row(Text(name), Text(brief(text), "yellow" if name == WARNING else ""))
    return table


def _checked(found: EvaluationDocument) -> str:
    """The result of a final check, in one line."""
    if found.accuracy is None:
        return f"{found.status.replace('_', ' ')}: {found.reason}"
    return (
        f"{', '.join(map(speedup_text, found.speedups.values()))}; {accuracy_text(found.accuracy)}"
    )


def _elsewhere(document: RunDocument) -> Iterator[RenderableType]:
    """The final checks on other kinds of machines, each with the reference's time there."""
    for kind, there in document.elsewhere.items():
        yield Text(f"\non {kind}", "bold")
        yield Text(f"reference: {milliseconds(there.reference_latency_ms)} in eager mode")
        for attempt, found in there.final_checks.items():
            time = f"{found.figures.latency}, " if found.figures else ""
            yield Text(f"final check of attempt {attempt}: {time}{_checked(found)}")


def runs_table(runs: Sequence[RunLine]) -> Table:
    """One line per run, newest first."""
    totals = [sum(each.roles.values(), Spent()) for each in runs if each.roles]
    priced = any(total.dollars or not total.unpriced_calls for total in totals)
    numbers = ("attempts", "correct", "best", "speedup", "tokens", *(["price"] if priced else []))
    table = columns("run", "begun", "strategy", "language", numbers=numbers)
    table.add_column("ended")
    for each in runs:
        table.add_row(
            each.id,
            f"{each.created:%m-%d %H:%M}",
            each.strategy,
            "" if each.strategy == AGENT else each.language,  # an agent mixes languages
            f"{each.attempts}/{each.budget_attempts}",
            str(each.correct),
            each.latency_text,
            "" if each.speedup is None else ratio_text(each.speedup),
            each.tokens_text,
            *([each.price_text] if priced else []),
            each.ended.detail if each.ended else Text("not yet", "yellow"),
        )
    return table


def _leaders(document: RunDocument, width: int) -> Iterator[RenderableType]:
    """The fastest attempts, as the search measured them, and what their marks mean.

    The best attempt and those that cannot be told apart from it come first. A narrow screen has no room for their errors.
    """
    if not document.leaders:
        return
    below = ", here and in the tree; final checks are below" if document.final_checks else ""
    yield Text(f"\nfastest correct kernels, as the search measured them{below}", "bold")
    has_room = width >= ROOM_FOR_ERRORS
    errors = ("error", "meets") if has_room else ()
    table = columns(numbers=("attempt", "latency", "vs eager [95 %]", "roofline", *errors))
    table.add_column(no_wrap=True, ratio=1)
    table.expand = True
    attempts = {each.attempt: each for each in document.attempts}
    leaders = [(each, each.figures) for each in map(attempts.__getitem__, document.leaders)]
    beating = {
        each.attempt: found.roofline_why for each, found in leaders if found and found.roofline_why
    }
    for each, found in leaders:
        assert found is not None  # a leader is correct
        level = "≈" if each.id in document.level else ""
        mark = "★" if each.id == document.best else "=" if each.id in document.group else level
        then = f" ({found.eager_beside})" if found.eager_beside else ""
        share = "unknown" if beating else found.roofline
        error = (found.error, found.meets) if has_room else ()
        speedup, idea = found.speedups["eager"] + then, Text(each.idea, "dim")
        table.add_row(f"{mark} {each.id}", found.latency, speedup, share, *error, idea)
    yield table
    if any(found and found.eager_beside for _, found in leaders):
        yield Text(BESIDE_NOTE, "dim")
    yield from map(Text, document.standing)
    if beating:
        yield Text(f"{listed(beating)}: {next(iter(beating.values()))}", "yellow")


def _counts(document: RunDocument) -> Text:
    """How many attempts ended with each status, and how many failures were repaired."""
    text = Text(f"{counted(document.made, 'attempt')}: ")
    parts = [
        Text(f"{count} {name.replace('_', ' ')}", style)
        for name, style in STATUS_STYLES.items()
        if (count := document.statuses.get(name))
    ]
    text.append_text(Text(", ").join(parts) if parts else Text("none finished"))
    if tuned := len(document.attempts) - document.made:
        text.append(f"; {tuned} tuned")
    if taken := document.failures_taken_up:
        text.append(
            f"; {counted(taken, 'failure')} debugged, {document.failures_repaired} repaired"
        )
    return text
