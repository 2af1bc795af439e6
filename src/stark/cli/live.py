"""Progress of a run: a growing tree on a terminal, a line per event elsewhere. Both are a `Watch`.

Knows no store and changes nothing: it draws what it is told.
"""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stark.cli.redrawn import Redrawn, spinning
from stark.core.evaluation import Correct, Evaluation
from stark.core.node import Node, Selection
from stark.core.reference import Reference
from stark.core.run import Run
from stark.core.usage import Usage
from stark.explain.evaluation import checked, reason, speedup_text, status
from stark.explain.numbers import counted, duration, milliseconds
from stark.explain.run import idea, models_line, price, reference_line, tokens
from stark.optimize import Watch
from stark.promotion import best_so_far
from stark.report.tree import TreeTable
from stark.search.tree import Tree

FRAME_LINES = 8
"""Lines of the screen that are not the tree's."""

STEP_WORDS = {
    "plan": "planning",
    "code": "coding",
    "debug": "repairing",
    "solo": "writing",
    "judge": "judging",
    "check": "final check",
}
NARROW = 100
"""Below this many columns the budget is shown in less room."""


class Progress(Watch, AbstractAsyncContextManager["Progress"], Protocol):
    """A watch that is on while its block lasts."""


def open_progress(console: Console, run: Run, earlier_s: float) -> Progress:
    """A live screen on a terminal, else plain lines; `earlier_s` is the run's active time so far."""
    if console.is_terminal:
        return LiveScreen(console, run, earlier_s)
    return PlainLines(console, run)


class PlainLines:
    """One line per event, for logs and pipes."""

    def __init__(self, console: Console, run: Run) -> None:
        self._console, self._run = console, run
        self._tree: Tree | None = None

    async def __aenter__(self) -> Self:
        run = self._run
        self._say(
            f"run {run.id}: {run.problem.name} with {run.config.strategy.name} in {run.config.language}"
        )
        self._say(f"models: {models_line(run)}")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is on."""

    def started(self, run: Run, reference: Reference, tree: Tree, usage: Usage) -> None:
        """Say what is to be beaten."""
        self._tree = tree
        self._say(f"device: {reference.device.name}")
        self._say(f"reference: {reference_line(reference)}")
        for warning in reference.warnings:
            self._say(f"warning: {warning}")
        if tree.nodes:
            self._say(f"goes on after {counted(len(tree.nodes), 'attempt')}")

    def began(self, attempt: int, selection: Selection) -> None:
        """Say from where."""
        doing = "repairs" if selection.action == "debug" else "improves"
        start = f"attempt {selection.parent}" if selection.parent else "the reference"
        self._say(f"attempt {attempt} {doing} {start}")

    def stepped(self, attempt: int, step: str) -> None:
        """Say with whom it is."""
        self._say(f"attempt {attempt}: {STEP_WORDS.get(step, step)}")

    def paid(self, usage: Usage) -> None:
        """Too much for a line each."""

    def finished(self, node: Node) -> None:
        """Say how it ended."""
        if not isinstance(node.evaluation, Correct):
            self._say(f"attempt {node.id}: {status(node.evaluation)}: {reason(node.evaluation)}")
            return
        best = self._tree is not None and self._tree.best == node
        self._say(
            f"attempt {node.id}: correct, {milliseconds(node.evaluation.latency_ms)}, "
            f"{speedup_text(node.evaluation.speedup_vs('eager'))}{', the best so far' if best else ''}"
        )

    def promoting(self, node: Node) -> None:
        """Say which."""
        self._say(f"final check of attempt {node.id}")

    def promoted(self, node: Node, evaluation: Evaluation) -> None:
        """Say what came of it."""
        self._say(f"final check of attempt {node.id}: {checked(evaluation)}")

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


class LiveScreen(Redrawn):
    """The growing tree, what is in flight, the best so far and what is left of the budget."""

    def __init__(self, console: Console, run: Run, earlier_s: float = 0.0) -> None:
        super().__init__(console)
        self._run = run
        self._tree: Tree | None = None
        self._reference: Reference | None = None
        self._usage = Usage()
        self._steps: dict[int, tuple[str, float]] = {}
        self._checking: tuple[str, float] | None = None
        self._checked: dict[int, Evaluation] = {}
        self._began_s = time.monotonic()
        self._earlier_s = earlier_s

    def started(self, run: Run, reference: Reference, tree: Tree, usage: Usage) -> None:
        """From now on there is a tree; what to beware of stays above it."""
        for warning in reference.warnings:
            self._console.print(Text(warning, "yellow"))
        self._tree, self._reference, self._usage = tree, reference, usage

    def began(self, attempt: int, selection: Selection) -> None:
        """The tree shows it as in flight."""

    def stepped(self, attempt: int, step: str) -> None:
        """Its line says with whom it is."""
        self._steps[attempt] = (step, time.monotonic())

    def paid(self, usage: Usage) -> None:
        """The last line counts."""
        self._usage = usage

    def finished(self, node: Node) -> None:
        """The tree shows it as finished."""
        self._steps.pop(node.id, None)

    def promoting(self, node: Node) -> None:
        """The line below the tree says which."""
        self._checking = (f"final check of attempt {node.id}", time.monotonic())

    def promoted(self, node: Node, evaluation: Evaluation) -> None:
        """From now on this counts, and not what the search measured."""
        self._checking = None
        self._checked[node.id] = evaluation

    def screen(self) -> RenderableType:
        """All that is on the screen now."""
        run = self._run
        title = Text.assemble(
            (run.problem.name, "bold"),
            f"  {run.config.strategy.name} in {run.config.language}  ",
            (run.id, "dim"),
        )
        models = Text(models_line(run), "dim", no_wrap=True, overflow="ellipsis")
        if self._tree is None or self._reference is None:
            waiting = spinning("starting the judge and measuring the reference", self._began_s)
            return Group(title, models, Text(), waiting)
        device = Text(
            f"{self._reference.device.name}: {reference_line(self._reference)}",
            "dim",
            no_wrap=True,
            overflow="ellipsis",
        )
        tree = TreeTable(
            self._tree,
            run.problem.name,
            steps={
                attempt: spinning(STEP_WORDS.get(step, step), since_s)
                for attempt, (step, since_s) in self._steps.items()
            },
            checked=self._checked,
            most_lines=max(3, self._console.height - FRAME_LINES),
        )
        return Group(
            title,
            models,
            device,
            Text(),
            tree.table(self._console.width),
            Text(),
            self._best(self._tree),
            self._spent(self._tree),
        )

    def _best(self, tree: Tree) -> Text:
        if self._checking is not None:
            return spinning(*self._checking)
        best = best_so_far(tree, self._checked)
        if best is None or not isinstance(best.evaluation, Correct):
            said = "no kernel held in the final check" if self._checked else "no correct kernel yet"
            return Text(said, "dim")
        said = f"best  {speedup_text(best.evaluation.speedup_vs('eager'))}, attempt {best.id}"
        line = Text(said, "green", no_wrap=True, overflow="ellipsis")
        return line.append(f"  {idea(best)}", "dim")

    def _spent(self, tree: Tree) -> Table:
        """Attempts as a bar, then tokens, price and time, each with its limit if it has one."""
        budget, usage = self._run.config.budget, self._usage
        minutes = "" if budget.minutes is None else f" of {budget.minutes:g} min"
        said = " · ".join(
            (
                f"{len(tree.nodes)} of {budget.attempts} attempts",
                tokens(usage) + ("" if budget.tokens is None else f" of {budget.tokens:,}"),
                price(usage) + ("" if budget.dollars is None else f" of ${budget.dollars:.2f}"),
                duration(self._earlier_s + time.monotonic() - self._began_s) + minutes,
            )
        )
        row = Table.grid(padding=(0, 2, 0, 0), expand=True)
        bar = 20 if self._console.width >= NARROW else 10
        row.add_column(width=bar)
        row.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        row.add_row(ProgressBar(budget.attempts, len(tree.nodes), width=bar), said)
        return row
