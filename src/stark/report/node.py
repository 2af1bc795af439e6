"""One attempt in full: its plan, the changes, the evaluation and the cost."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from stark.core.call import Call, spent_by_role
from stark.core.errors import UsageError
from stark.core.evaluation import Evaluation
from stark.core.node import ROOT, Node
from stark.explain.evaluation import status
from stark.explain.run import idea
from stark.report.facts import WARNING, evaluation_facts
from stark.report.spending import fit_line, spending
from stark.report.tables import STATUS_STYLES, facts
from stark.report.view import RunView


def node_of(view: RunView, attempt: int) -> Node:
    """The finished attempt with this number. Raises UsageError if there is none."""
    if attempt == ROOT or attempt not in view.tree:
        numbers = sorted(node.id for node in view.nodes)
        known = f"it has {numbers[0]} to {numbers[-1]}" if numbers else "it has none yet"
        raise UsageError(f"run {view.run.id} has no finished attempt {attempt}; {known}")
    return view.tree.node(attempt)


def node_text(view: RunView, node: Node) -> RenderableType:
    """One attempt: its plan, changes, evaluation, output and model calls."""
    start = "the reference" if node.parent == ROOT else f"attempt {node.parent}"
    doing = idea(node) if node.action == "debug" else f"improve {start}: {idea(node)}"
    return Group(
        Rule(f"attempt {node.id} of {view.run.id}: {doing}", align="left"),
        *_plan(node),
        *_changes(view, node),
        Rule("evaluation", align="left"),
        evaluation_table(node.evaluation),
        *_output(node.evaluation),
        *_calls([call for call in view.calls if call.attempt == node.id]),
    )


def evaluation_table(evaluation: Evaluation) -> Table:
    """The status with all its evidence."""
    table = facts()
    table.add_row("status", Text(status(evaluation), STATUS_STYLES[evaluation.status]))
    for name, text in evaluation_facts(evaluation):
        table.add_row(Text(name), Text(text, "yellow" if name == WARNING else ""))
    return table


def _plan(node: Node) -> Iterator[RenderableType]:
    """The plan that the attempt implements.

    A repair inherits its parent's plan. An inherited plan is shown without its line numbers, since they refer to an
    older source.
    """
    if node.plan is None:
        return
    inherited = node.action == "debug"
    title = f"plan of attempt {node.parent}" if inherited else "plan"
    yield Rule(f"{title}: {node.plan.action}", align="left")
    yield Text(node.plan.strategy)
    for anchor in node.plan.anchors:
        lines = "" if inherited else f", lines {anchor.first_line} to {anchor.last_line}"
        yield Text.assemble("\n", (f"anchor {anchor.name}", "bold"), lines)
        yield Text(anchor.instruction)


def _changes(view: RunView, node: Node) -> Iterator[RenderableType]:
    """The diff to the parent's source, or the whole source if the parent is the reference."""
    before = None if node.parent == ROOT else view.tree.node(node.parent).candidate
    if node.candidate is None:
        return
    if before is None:
        yield Rule("source", align="left")
        yield python(node.candidate.source)
        return
    yield Rule(f"changes to attempt {node.parent}", align="left")
    old, new = before.source.splitlines(), node.candidate.source.splitlines()
    names = f"attempt {node.parent}", f"attempt {node.id}"
    diff = "\n".join(difflib.unified_diff(old, new, *names, lineterm="", n=2))
    yield _code(diff, "diff") if diff else Text("none")


def _output(evaluation: Evaluation) -> Iterator[RenderableType]:
    if evaluation.output.strip():
        yield Rule("end of the output", align="left")
        yield Text(evaluation.output.rstrip())


def _calls(calls: list[Call]) -> Iterator[RenderableType]:
    """Every model call, what was cut from its prompt, and the usage by role."""
    if not calls:
        return
    yield Rule("models", align="left")
    table = facts()
    for call in calls:
        asked = sum(len(message.text) for message in call.messages)
        table.add_row(
            f"{call.turn + 1}. {call.role}",
            f"{call.reply.model}: {asked:,} characters sent, {len(call.reply.text):,} received",
        )
        if call.fit is not None and (line := fit_line(call.fit)):
            table.add_row("", line)
    yield table
    yield from spending(spent_by_role(calls))


def python(source: str) -> Syntax:
    """Highlighted Python source."""
    return _code(source.rstrip(), "python")


def _code(text: str, language: str) -> Syntax:
    return Syntax(text, language, background_color="default", word_wrap=True)
