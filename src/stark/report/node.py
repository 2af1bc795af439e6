"""One attempt in full, from its document: the evaluation, the changes, its plan and the cost."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from stark.core.errors import UsageError
from stark.core.node import ROOT, Node
from stark.report.attempt_document import Judgement, NodeDocument
from stark.report.facts import WARNING
from stark.report.spending import spending, spending_notes
from stark.report.tables import STATUS_STYLES, brief, facts
from stark.report.view import RunView

LARGE_SOURCE = 200_000
"""Characters of a source that are shown; a larger one is not compared."""


def node_of(view: RunView, attempt: int) -> Node:
    """The finished attempt with this number. Raises UsageError if there is none."""
    if attempt == ROOT or attempt not in view.tree:
        numbers = sorted(node.id for node in view.nodes)
        known = f"it has {numbers[0]} to {numbers[-1]}" if numbers else "it has none yet"
        raise UsageError(f"run {view.run.id} has no finished attempt {attempt}; {known}")
    return view.tree.node(attempt)


def node_text(document: NodeDocument) -> RenderableType:
    """One attempt: its evaluation with the output, its changes, plan and model calls."""
    start = "the reference" if document.parent == ROOT else f"attempt {document.parent}"
    improves = f"improve {start}: " if document.action == "improve" else ""
    title = f"attempt {document.attempt} of {document.run}: {improves}{document.idea}"
    return Group(
        Rule(Text(title), align="left"),
        *_judged("evaluation", document.search),
        *(() if document.tuning is None else (Rule("tuning", align="left"), Text(document.tuning))),
        *(() if document.check is None else _judged("final check", document.check)),
        *_elsewhere(document),
        *_changes(document),
        *_plan(document),
        *_calls(document),
    )


def _plan(document: NodeDocument) -> Iterator[RenderableType]:
    """The plan that the attempt implements, with line numbers only if they are those of the source that it edits."""
    if (plan := document.node.plan) is None:
        return
    title = "plan" if document.action == "improve" else f"plan of attempt {document.parent}"
    yield Rule(f"{title}: {plan.action}", align="left")
    yield Text(brief(plan.strategy))
    for anchor in plan.anchors:
        lines = f", lines {anchor.first_line} to {anchor.last_line}" if document.anchored else ""
        yield Text.assemble("\n", (f"anchor {anchor.name}", "bold"), lines)
        yield Text(brief(anchor.instruction))


def _changes(document: NodeDocument) -> Iterator[RenderableType]:
    """The diff to the parent's source, or the whole source if the parent is the reference."""
    if document.node.candidate is None:
        return
    source = document.node.candidate.source
    large = max(len(source), len(document.before or "")) > LARGE_SOURCE
    if document.parent == ROOT or document.before is None or large:
        yield Rule("source", align="left")
        yield python(source)
        return
    yield Rule(f"changes to attempt {document.parent}", align="left")
    old, new = document.before.splitlines(), source.splitlines()
    names = f"attempt {document.parent}", f"attempt {document.attempt}"
    diff = "\n".join(difflib.unified_diff(old, new, *names, lineterm="", n=2))
    yield _code(diff, "diff") if diff else Text("none")


def _judged(title: str, judgement: Judgement) -> Iterator[RenderableType]:
    """The status with all its evidence, the profile and the output."""
    yield Rule(title, align="left")
    yield judgement_table(judgement)
    if judgement.output.strip():
        yield Rule("end of the output", align="left")
        yield Text(brief(judgement.output.rstrip()))


def judgement_table(judgement: Judgement) -> Table:
    """The status with all its evidence and the profile."""
    table, status = facts(), judgement.summary.status
    table.add_row("status", Text(status.replace("_", " "), STATUS_STYLES[status]))
    for name, text in judgement.facts:
        table.add_row(Text(name), Text(brief(text), "yellow" if name == WARNING else ""))
    for case, found in judgement.profiles.items():
        table.add_row(Text(f"profile {case}".strip()), Text("\n".join(found.lines)))
    return table


def _elsewhere(document: NodeDocument) -> Iterator[RenderableType]:
    """The final checks on other kinds of machines."""
    for kind, judgement in document.elsewhere.items():
        yield from _judged(f"final check on {kind}", judgement)


def _calls(document: NodeDocument) -> Iterator[RenderableType]:
    """Every model call, what was cut from its prompt, and the usage by role."""
    if not document.calls:
        return
    yield Rule("models", align="left")
    table = facts()
    for call, cut in zip(document.calls, document.cuts, strict=True):
        asked = sum(len(message.text) for message in call.messages)
        sent = f"{call.reply.model}: {asked:,} characters sent, {len(call.reply.text):,} received"
        table.add_row(f"{call.turn + 1}. {call.role}", Text(sent))
        if cut is not None:
            table.add_row("", cut)
    yield table
    yield from spending(document.spending, spending_notes(document.roles))


def python(source: str) -> Syntax:
    """Highlighted Python source."""
    return _code(source.rstrip(), "python")


def _code(text: str, language: str) -> Syntax:
    return Syntax(brief(text, LARGE_SOURCE), language, background_color="default", word_wrap=True)
