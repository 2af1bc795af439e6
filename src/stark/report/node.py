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
from stark.core.evaluation import Correct, Evaluation
from stark.core.node import ROOT, Node
from stark.explain.evaluation import (
    accuracy_text,
    evidence,
    measured,
    objective_text,
    roofline_text,
    speedup_text,
    status,
    verdict,
)
from stark.explain.numbers import milliseconds
from stark.explain.profile import profile_lines
from stark.explain.run import idea
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
    if isinstance(evaluation, Correct):
        for name, text in _measurements(evaluation):
            table.add_row(Text(name), Text(text))
    else:
        table.add_row("evidence", Text(evidence(evaluation)))
    if evaluation.seconds:
        spent = ", ".join(f"{phase} {s:.2g}" for phase, s in evaluation.seconds.items())
        table.add_row("seconds", spent)
    if evaluation.sandbox:
        table.add_row("sandbox", ", ".join(evaluation.sandbox))
    for warning in evaluation.warnings:
        table.add_row("warning", Text(warning, "yellow"))
    return table


def _measurements(correct: Correct) -> Iterator[tuple[str, str]]:
    """What was measured; with several cases, first over all of them, then in each."""
    weighing = correct.weighing
    if weighing is None:
        yield "latency", measured(correct.candidate)
    else:
        yield "objective", objective_text(weighing)
        yield "latency", f"{milliseconds(correct.latency_ms)} (geometric mean)"
    for name in correct.references:
        speedup = verdict(correct) if name == "eager" else speedup_text(correct.speedup_vs(name))
        yield name, f"{milliseconds(correct.reference_ms(name))}, so {speedup}"
    if weighing is None:
        yield from _limits(correct)
        return
    for case, each in correct.cases.items():
        yield f"case {case}", f"weight {weighing.weights[case]:g}"
        yield from _measurements(each)


def _limits(correct: Correct) -> Iterator[tuple[str, str]]:
    """The roofline, the accuracy, the profile and the device of one case."""
    roof, accuracy = correct.roofline, correct.accuracy
    work = f"{roof.least_bytes / 1e6:.4g} MB, {roof.flops / 1e9:.4g} GFLOP in {roof.own_arithmetic}"
    yield "roofline", f"{roofline_text(correct)}; at least {work}"
    against = f"relative RMS, against the reference in {accuracy.oracle}"
    allclose = f"KernelBench's allclose {'passes' if accuracy.allclose else 'fails'}"
    yield "accuracy", f"{accuracy_text(accuracy)}; {against}; {allclose}"
    yield "precision", f"{accuracy.precision} was asked for"
    if correct.profiled is not None:
        yield "profile", "\n".join(profile_lines(correct.profiled))
    yield "device", f"{correct.device.name} ({correct.device.architecture})"


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
