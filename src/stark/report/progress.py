"""A run's progress as lines of text, for logs, pipes and notebooks."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from stark.core.evaluation import Correct
from stark.core.node import Node
from stark.core.standing import best_node
from stark.events import (
    AttemptBegan,
    AttemptFinished,
    CheckBegan,
    CheckFinished,
    Draining,
    Event,
    JudgedElsewhere,
    JudgingElsewhere,
    Notice,
    OnEvent,
    Prepared,
    Started,
    Stepped,
)
from stark.explain.evaluation import checked, eager_beside, reason, speedup_text, status
from stark.explain.lesson import lessons_line
from stark.explain.numbers import counted, milliseconds
from stark.explain.run import (
    STEP_WORDS,
    estimate_line,
    mode_line,
    models_line,
    reference_line,
    replay_line,
)
from stark.search.tree import Tree

DRAINING = "stopping: waiting for replies that are charged in any case; Ctrl-C again abandons them"


def printing(on_event: OnEvent) -> OnEvent:
    """A handler that prints a line per event, then passes the event on."""
    lines = Lines()

    def handle(event: Event) -> None:
        for line in lines.of(event):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        on_event(event)

    return handle


class Lines:
    """The events of one run as text."""

    _tree: Tree | None = None

    def of(self, event: Event) -> Iterator[str]:
        """The lines of an event, none for most."""
        match event:
            case Prepared(run, expected):
                config = run.config
                yield f"run {run.id}: {run.problem.name} with {config.strategy.name} in {config.language}"
                yield replay_line(run) if expected is None else f"models: {models_line(run)}"
                if expected is not None:
                    yield estimate_line(expected, config.budget)
                if mode := mode_line(run.problem):
                    yield f"mode: {mode}"
            case Started(run, reference, tree, _):
                self._tree = tree
                yield f"device: {reference.device.name}"
                yield f"reference: {reference_line(reference)}"
                yield from (f"warning: {warning}" for warning in reference.warnings)
                if run.config.lessons:
                    yield f"lessons: {lessons_line(run.config.lessons)}"
                if tree.nodes:
                    yield f"continues after {counted(tree.made, 'attempt')}"
            case AttemptBegan(attempt, selection):
                doing = {"debug": "repairs", "tune": "tunes"}.get(selection.action, "improves")
                start = f"attempt {selection.parent}" if selection.parent else "the reference"
                yield f"attempt {attempt} {doing} {start}"
            case Stepped(attempt, step):
                yield f"attempt {attempt}: {STEP_WORDS.get(step, step)}"
            case AttemptFinished(node):
                yield self._finished(node)
            case CheckBegan(node):
                yield f"final check of attempt {node.id}"
            case CheckFinished(node, evaluation):
                yield f"final check of attempt {node.id}: {checked(evaluation)}"
            case JudgingElsewhere(node, kind):
                yield f"final check of attempt {node.id} on {kind}"
            case JudgedElsewhere(node, kind, evaluation):
                yield f"final check of attempt {node.id} on {kind}: {checked(evaluation)}"
            case Draining():
                yield DRAINING
            case Notice(text) if text:
                yield text

    def _finished(self, node: Node) -> str:
        if not isinstance(node.evaluation, Correct):
            return f"attempt {node.id}: {status(node.evaluation)}: {reason(node.evaluation)}"
        is_best = self._tree is not None and best_node(self._tree.nodes, {}) == node
        then = eager_beside(node.evaluation, self._tree.root_latency_ms if self._tree else None)
        return (
            f"attempt {node.id}: correct, {milliseconds(node.evaluation.latency_ms)}{then}, "
            f"{speedup_text(node.evaluation.speedup_vs('eager'))}{', the fastest so far' if is_best else ''}"
        )
